/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Checksums: the ICRC of RoCEv2 (IBA annex A17.3.3) and that of the Internet
 * protocols (RFC 1071).
 */
#include <endian.h>
#include <string.h>

#include <libdeflate.h>

#include "vr_wire.h"

/* CRC-32 of eight bytes 0xff, which stand for the LRH that RoCE lacks. */
#define ICRC_SEED 0x2144df1cu

uint32_t vr_icrc(const uint8_t *frame, size_t l3, size_t end)
{
    const uint8_t *ip = frame + l3;
    bool v6 = ip[0] >> 4 == 6;
    size_t ip_len = v6 ? VR_IPV6_LEN : VR_IPV4_LEN;
    size_t len = ip_len + VR_UDP_LEN + VR_BTH_LEN;
    uint8_t masked[VR_IPV6_LEN + VR_UDP_LEN + VR_BTH_LEN];
    uint32_t crc;

    /* What may change on the way counts as ones; the payload has none of it. */
    memcpy(masked, ip, len);
    if (v6) {
        masked[0] |= 0x0f;              /* traffic class, flow label */
        memset(masked + 1, 0xff, 3);
        masked[7] = 0xff;               /* hop limit */
    } else {
        masked[1] = 0xff;               /* TOS */
        masked[8] = 0xff;               /* TTL */
        memset(masked + 10, 0xff, 2);   /* header checksum */
    }
    memset(masked + ip_len + 6, 0xff, 2);           /* UDP checksum */
    masked[ip_len + VR_UDP_LEN + 4] = 0xff;         /* FECN, BECN, reserved */

    crc = libdeflate_crc32(ICRC_SEED, masked, len);
    return libdeflate_crc32(crc, ip + len, end - l3 - len);
}

uint64_t vr_csum_add(uint64_t sum, const uint8_t *p, size_t len)
{
    /* In the host's byte order: the sum does not care until it is folded. */
    for (; len >= 4; p += 4, len -= 4) {
        uint32_t word;

        memcpy(&word, p, sizeof(word));
        sum += word;
    }
    if (len) {
        uint32_t word = 0;

        memcpy(&word, p, len);
        sum += word;
    }
    return sum;
}

uint16_t vr_csum_fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return be16toh(sum);
}

uint64_t vr_csum_pseudo(const uint8_t *ip, uint32_t len, uint8_t protocol)
{
    bool v6 = ip[0] >> 4 == 6;
    uint8_t tail[8] = {
        len >> 24, len >> 16, len >> 8, len, 0, 0, 0, protocol
    };
    uint64_t sum = vr_csum_add(0, tail, sizeof(tail));

    return v6 ? vr_csum_add(sum, ip + 8, 32) : vr_csum_add(sum, ip + 12, 8);
}

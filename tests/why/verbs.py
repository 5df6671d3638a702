#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs by hand: run in a guest, it does one JSON request a line.

A request is [QP's name, operation, arguments by name]; the answer is
{"result": …} or {"error": "…"}.  See side.py for its other end.
"""

import json
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

BUFFER = 1 << 16
TYPES = {"rc": e.IBV_QPT_RC, "uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
STATES = {"reset": e.IBV_QPS_RESET, "init": e.IBV_QPS_INIT,
          "rts": e.IBV_QPS_RTS, "sqd": e.IBV_QPS_SQD, "err": e.IBV_QPS_ERR}
QKEY = 0x11111111


class Endpoint:
    """A QP with all that it needs; methods are the operations."""

    def __init__(self, device, gid_index):
        self.gid_index = gid_index
        self.context = Context(name=device)
        self.pd = PD(self.context)
        access = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE |
                  e.IBV_ACCESS_REMOTE_READ)
        self.mr = MR(self.pd, BUFFER, access)
        self.srq = self.qp = self.cq = self.channel = self.ah = None
        self.serial = 0

    def create(self, kind="rc", cqe=64, depth=32, srq=False):
        """Create CQ and QP; returns the QP's number."""
        self.kind = kind
        self.channel = CompChannel(self.context)
        self.cq = CQ(self.context, cqe, None, self.channel, 0)
        if srq:
            self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=depth)))
        self.qp = QPEx(self.context, QPInitAttrEx(
            qp_type=TYPES[kind], scq=self.cq, rcq=self.cq, srq=self.srq,
            cap=QPCap(max_send_wr=depth, max_recv_wr=depth), pd=self.pd,
            sq_sig_all=1, send_ops_flags=e.IBV_QP_EX_WITH_SEND,
            comp_mask=e.IBV_QP_INIT_ATTR_PD |
            e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) if kind != "ud" else QP(
                self.pd, QPInitAttr(
                    qp_type=TYPES[kind], scq=self.cq, rcq=self.cq,
                    cap=QPCap(max_send_wr=depth, max_recv_wr=depth),
                    sq_sig_all=1))
        return self.qp.qp_num

    def init(self):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = (e.IBV_ACCESS_REMOTE_WRITE |
                                e.IBV_ACCESS_REMOTE_READ)
        attr.qkey = QKEY
        self.qp.to_init(attr)

    def _route(self, gid):
        return AHAttr(gr=GlobalRoute(dgid=GID(gid), sgid_index=self.gid_index),
                      is_global=1, port_num=1)

    def connect(self, peer=0, gid=None, timeout=17, retry=7, rnr=7,
                rnr_timer=0, mtu=e.IBV_MTU_1024):
        """To RTS, from RESET or INIT."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = (e.IBV_ACCESS_REMOTE_WRITE |
                                e.IBV_ACCESS_REMOTE_READ)
        attr.qkey = QKEY
        if self.kind != "ud":
            attr.path_mtu = mtu
            attr.dest_qp_num = peer
            attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
            attr.min_rnr_timer = rnr_timer
            attr.timeout, attr.retry_cnt, attr.rnr_retry = timeout, retry, rnr
            attr.ah_attr = self._route(gid)
        self.qp.to_rts(attr)

    def state(self, to):
        attr = QPAttr()
        attr.qp_state = STATES[to]
        self.qp.modify(attr, e.IBV_QP_STATE)

    def recv(self, count=1, size=1024):
        for _ in range(count):
            wr = RecvWR(wr_id=self._next(), num_sge=1,
                        sg=[SGE(self.mr.buf, size, self.mr.lkey)])
            (self.srq or self.qp).post_recv(wr)

    def _next(self):
        self.serial += 1
        return self.serial

    def send(self, count=1, size=64, lkey=None, solicited=False):
        flags = e.IBV_SEND_SIGNALED | (e.IBV_SEND_SOLICITED * solicited)
        for _ in range(count):
            self.qp.post_send(SendWR(
                wr_id=self._next(), opcode=e.IBV_WR_SEND, send_flags=flags,
                num_sge=1, sg=[SGE(self.mr.buf, size,
                                   lkey or self.mr.lkey)]))

    def write(self, rkey, address, size=64):
        wr = SendWR(wr_id=self._next(), opcode=e.IBV_WR_RDMA_WRITE,
                    send_flags=e.IBV_SEND_SIGNALED, num_sge=1,
                    sg=[SGE(self.mr.buf, size, self.mr.lkey)])
        wr.set_wr_rdma(rkey, address)
        self.qp.post_send(wr)

    def datagram(self, peer, gid, lkey=None):
        wr = SendWR(wr_id=self._next(), opcode=e.IBV_WR_SEND,
                    send_flags=e.IBV_SEND_SIGNALED, num_sge=1,
                    sg=[SGE(self.mr.buf, 64, lkey or self.mr.lkey)])
        self.ah = AH(self.pd, attr=self._route(gid))
        wr.set_wr_ud(self.ah, peer, QKEY)
        self.qp.post_send(wr)

    def scribble(self, count=1):
        """Write SENDs to the send queue and ring no doorbell."""
        self.qp.wr_start()
        for _ in range(count):
            self.qp.wr_id = self._next()
            self.qp.wr_flags = e.IBV_SEND_SIGNALED
            self.qp.wr_send()
            self.qp.wr_set_sge(SGE(self.mr.buf, 64, self.mr.lkey))

    def ring(self):
        """The doorbell for what scribble() wrote."""
        self.qp.wr_complete()

    def poll(self, count=64):
        """Take completions; returns their statuses."""
        _number, completions = self.cq.poll(count)
        return [completion.status for completion in completions or []]

    def await_poll(self, seconds=30):
        """The same, once there are some."""
        deadline = time.monotonic() + seconds
        while not (statuses := self.poll()):
            if time.monotonic() > deadline:
                raise TimeoutError("no completion came")
            time.sleep(0.01)
        return statuses

    def arm(self, solicited=False, times=1):
        for _ in range(times):
            self.cq.req_notify(solicited)

    def event(self):
        """Take the event of the completion channel, as it must have come."""
        self.channel.get_cq_event(self.cq)
        self.cq.ack_events(1)

    def keys(self):
        """(rkey, address) of the memory that a peer may write to."""
        return self.mr.rkey, self.mr.buf

    def destroy(self):
        for thing in (self.qp, self.ah, self.srq, self.cq, self.channel, self.mr,
                      self.pd, self.context):
            if thing:
                thing.close()


def main():
    device, gid_index = sys.argv[1], int(sys.argv[2])
    endpoints = {}
    print(json.dumps({"result": "ready"}), flush=True)
    for line in sys.stdin:
        name, operation, arguments = json.loads(line)
        try:
            if name not in endpoints:
                endpoints[name] = Endpoint(device, gid_index)
            result = getattr(endpoints[name], operation)(**arguments)
            if operation == "destroy":
                del endpoints[name]
            answer = {"result": result}
        except Exception as error:      # the other end decides what it means
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-2.0-or-later
"""The impairment table, the card beside soft-RoCE in one run.

These measure and fail only when a program does: machines differ in what else
they do.
"""

from vroce_tool import impairtable, relay
from vroce_tool.e2e import Skip, shape, test
from vroce_tool.guest import CARD, RXE

# The peer with soft-RoCE needs longer to have sent anything at all.
CARD_SECONDS, RXE_SECONDS, ROUNDS = 1, 4, 1

_card = {}


def figures(prefix, measured):
    ratios = impairtable.ratios(measured)
    result = {}
    for name, rate in measured.items():
        result[f"{prefix}MiB/s, {name}"] = rate
        result[f"{prefix}ratio, {name}"] = ratios[name]
    return result


@test("bandwidth of the card under loss",
      lab=shape(CARD, CARD, impair=relay.OFF))
def card(bench):
    _card.update(impairtable.measure(bench, CARD_SECONDS, ROUNDS))
    return figures("", _card)


@test("the same of two rxe guests", lab=shape(RXE, RXE, impair=relay.OFF),
      slow=True)
def rxe(bench):
    if not _card:
        raise Skip("there is no figure of the card to compare with")
    measured = impairtable.measure(bench, RXE_SECONDS, ROUNDS)
    impairtable.show(impairtable.rows(_card, measured))
    return figures("", _card) | figures("rxe: ", measured)

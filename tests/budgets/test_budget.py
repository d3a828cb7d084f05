"""Budgets as the interface shows them: shares, caps, what comes back, what is bought; recomputed from the ledger."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import httpx
import pytest

from tests.kit.noise import Noise
from tests.kit.service import COUNTS, JSON, Service, ask, open_session, people, refused, session_words, unique, where

pytestmark = pytest.mark.api

FEMALE, OLD = where(sex={"equals": "female"}), where(age={"between": [60, 80]})


def budget(service: Service, dataset: str) -> JSON:
    shown: JSON = service.admin.get(f"/v1/datasets/{dataset}").json()["budget"]
    return shown


def check_ledger(service: Service, dataset: str) -> dict[str, Any]:
    """The ledger's sums recomputed from its entries in exact arithmetic, by rules of this test's own: a reservation
    adds to what is held, a charge or purchase moves from held to spent, a return takes away.
    """
    ledger: dict[str, Any] = service.admin.get(f"/v1/datasets/{dataset}/ledger").json()
    held = spent = Fraction(0)
    for entry in ledger["entries"]:
        amount = Fraction(entry["amount"])
        assert amount >= 0
        match entry["kind"]:
            case "reserve":
                held += amount
            case "charge" | "purchase":
                held, spent = held - amount, spent + amount
            case "return":
                held -= amount
            case other:
                raise AssertionError(other)
        assert held >= 0
        assert held + spent <= Fraction(ledger["budget"])
    assert (held, spent) == (Fraction(ledger["reserved"]), Fraction(ledger["spent"]))
    assert held + spent == Fraction(ledger["sum"])
    assert Fraction(ledger["remaining"]) == Fraction(ledger["budget"]) - held - spent
    return ledger


class TestShares:
    def test_shares_add_up_to_the_whole(self, service: Service) -> None:
        """0.1 + 0.2 + 0.7 is 1.0, though not in floating point; then not a thousandth more. Catches budgets kept in
        floats, a remainder rounded up, a refusal that does not say how much is left.
        """
        dataset, analyst = people(service), service.principal("analyst")
        for epsilon, left in ((0.1, 0.9), (0.2, 0.7), (0.7, 0.0)):
            opened = open_session(analyst, dataset, epsilon=epsilon)
            assert opened["plan"]["epsilon"] == opened["reserved_epsilon"] == epsilon
            shown = budget(service, dataset)
            assert shown["remaining_epsilon"] == pytest.approx(left, abs=1e-9)
        whole = {"spent_epsilon": 0.0, "reserved_epsilon": 1.0, "remaining_epsilon": 0.0}
        assert shown == {
            "epsilon": 1.0,
            "delta": 1e-6,
            "regime": "renyi",
            **whole,
            "renyi": whole,
            "pure": {"spent_epsilon": 0.0, "reserved_epsilon": 0.0, "remaining_epsilon": 0.0},
            "impure": True,
        }
        problem = refused(analyst.post("/v1/sessions", json=session_words(dataset, epsilon=0.001)), "budget-exhausted")
        assert problem["requested"] == 0.001
        assert 0 <= problem["remaining"] < 1e-9
        check_ledger(service, dataset)

    def test_pure_noise_for_all_of_a_budget(self, service: Service) -> None:
        """A session and a release that take it all hold epsilon, and have spent it then. Catches the price in the sum
        that they pass shown, which is more than twice the budget, while nothing is left of either.
        """
        analyst, whole = service.principal("analyst"), {"remaining_epsilon": 0.0, "regime": "pure"}
        dataset = people(service)
        words = {"mechanism": {"construction": "laplace"}, "max_updates": None, "max_queries": 1, "epsilon": 1.0}
        id = open_session(analyst, dataset, **words)["id"]
        shown = budget(service, dataset)
        assert shown["renyi"]["reserved_epsilon"] > 2
        assert shown.items() >= {**whole, "spent_epsilon": 0.0, "reserved_epsilon": 1.0}.items()
        ask(analyst, id, FEMALE)
        assert budget(service, dataset).items() >= {**whole, "spent_epsilon": 1.0, "reserved_epsilon": 0.0}.items()
        ledger = service.admin.get(f"/v1/datasets/{dataset}/ledger").json()
        assert [entry["epsilon"] for entry in ledger["entries"]] == [1.0, 1.0]

        dataset = people(service)
        asked = {"dataset": dataset, "method": "histogram", "workload": {"marginals": 1}, "epsilon": 1.0}
        assert analyst.post("/v1/releases", json=asked).status_code == 202
        shown = budget(service, dataset)
        assert shown["spent_epsilon"] + shown["reserved_epsilon"] == 1.0
        assert shown["renyi"]["spent_epsilon"] + shown["renyi"]["reserved_epsilon"] > 2

    def test_remaining_is_what_neither_spent_nor_reserved_is(self, service: Service) -> None:
        """After hits, each on its own place: remaining = epsilon - spent - reserved, and what is shown as remaining
        can be reserved to the last digit. Catches charges taken from the remainder instead of the reservation.
        """
        dataset, analyst = people(service), service.principal("analyst")
        id = open_session(analyst, dataset, epsilon=0.3, max_updates=3)["id"]
        for number, query in enumerate((FEMALE, OLD), start=1):
            assert ask(analyst, id, query)["source"] == "measurement"
            shown = budget(service, dataset)
            assert shown["spent_epsilon"] == pytest.approx(0.1 * number, abs=1e-9)
            assert shown["reserved_epsilon"] == pytest.approx(0.3 - 0.1 * number, abs=1e-9)
            assert shown["remaining_epsilon"] == pytest.approx(
                shown["epsilon"] - shown["spent_epsilon"] - shown["reserved_epsilon"], abs=1e-15
            )
        check_ledger(service, dataset)
        open_session(analyst, dataset, epsilon=shown["remaining_epsilon"])
        check_ledger(service, dataset)

    def test_more_than_the_data_set_has(self, service: Service) -> None:
        """Catches a share above the whole taken for feasible."""
        dataset = people(service)
        for epsilon in (1.0000001, 2, 999):
            reply = service.admin.post("/v1/sessions", json=session_words(dataset, epsilon=epsilon))
            problem = refused(reply, "budget-exhausted")
            assert (problem["requested"], problem["remaining"]) == (epsilon, 1.0)

    def test_closing_returns_the_rest(self, service: Service) -> None:
        """Catches a reservation kept after closing, a charge returned, a second return."""
        dataset, analyst = people(service), service.principal("analyst")
        id = open_session(analyst, dataset, epsilon=1.0, max_updates=4)["id"]
        assert ask(analyst, id, FEMALE)["source"] == "measurement"
        refused(analyst.post("/v1/sessions", json=session_words(dataset, epsilon=0.5)), "budget-exhausted")
        closed = analyst.post(f"/v1/sessions/{id}/close")
        assert closed.status_code == 200
        assert closed.json()["status"] == "closed"
        assert Fraction(closed.json()["reserved"]) == 0
        assert budget(service, dataset)["remaining_epsilon"] == pytest.approx(0.75, abs=1e-9)
        refused(analyst.post(f"/v1/sessions/{id}/close"), "session-closed")
        ledger = check_ledger(service, dataset)
        assert [entry["kind"] for entry in ledger["entries"]] == ["reserve", "charge", "return"]
        assert Fraction(ledger["entries"][2]["amount"]) == Fraction(ledger["entries"][0]["amount"]) - Fraction(
            ledger["entries"][1]["amount"]
        )
        open_session(analyst, dataset, epsilon=0.74)

    def test_a_plan_charges_nothing(self, service: Service) -> None:
        """Catches a plan that reserves; every role may have one."""
        dataset = people(service)
        before = service.stored()
        for role in ("analyst", "auditor", "admin"):
            caller = service.admin if role == "admin" else service.principal(role)
            before = service.stored()
            assert caller.post("/v1/plans", json=session_words(dataset)).status_code == 200
            assert service.stored() == before

    def test_many_at_once_share_one_budget(self, service: Service) -> None:
        """Ten ask for a third each, at once: three get it. Catches a sum read before it is locked."""
        dataset, analyst = people(service), service.principal("analyst")
        words = session_words(dataset, epsilon=0.33)
        with ThreadPoolExecutor(10) as pool:
            replies = list(pool.map(lambda _: analyst.post("/v1/sessions", json=words), range(10)))
        assert sorted(reply.status_code for reply in replies) == [201] * 3 + [409] * 7
        check_ledger(service, dataset)


class TestGrants:
    def test_a_cap_holds_over_all_of_an_analysts_sessions(self, service: Service) -> None:
        """Catches a cap per session, a cap on somebody else, spending that comes free by closing."""
        dataset, name = people(service), unique("capped")
        analyst, other = service.principal("analyst", name), service.principal("analyst")
        reply = service.admin.put(f"/v1/datasets/{dataset}/grants/{name}", json={"epsilon": 0.3})
        assert reply.status_code == 200
        assert reply.json().items() >= {"dataset": dataset, "principal": name, "epsilon": 0.3}.items()

        id = open_session(analyst, dataset, epsilon=0.2, max_updates=2)["id"]
        problem = refused(analyst.post("/v1/sessions", json=session_words(dataset, epsilon=0.2)), "budget-exhausted")
        assert problem["requested"] == pytest.approx(0.2, abs=1e-9)
        assert problem["remaining"] == pytest.approx(0.1, abs=1e-9)
        assert ask(analyst, id, FEMALE)["source"] == "measurement"
        analyst.post(f"/v1/sessions/{id}/close")
        # Half of it was spent, so 0.2 of the cap is left.
        problem = refused(analyst.post("/v1/sessions", json=session_words(dataset, epsilon=0.21)), "budget-exhausted")
        assert problem["remaining"] == pytest.approx(0.2, abs=1e-9)
        open_session(analyst, dataset, epsilon=0.19)
        open_session(other, dataset, epsilon=0.5)
        check_ledger(service, dataset)

    @pytest.mark.parametrize("access", ["open", "granted"])
    def test_a_lowered_grant_bounds_what_is_reserved_from_there_on(self, service: Service, access: str) -> None:
        """What a session holds stays its own, and no other is opened; an admin may close it, which gives back what is
        left. Catches a session that breaks off in its midst, and a grant that is only looked at once."""
        dataset, name = people(service, access=access), unique("analyst")
        analyst, path = service.principal("analyst", name), f"/v1/datasets/{dataset}/grants/{name}"
        service.admin.put(path, json={"epsilon": 0.5})
        session = open_session(analyst, dataset, epsilon=0.5)
        assert service.admin.put(path, json={"epsilon": 0}).status_code == 200
        assert ask(analyst, session["id"], FEMALE)["sequence"] == 1
        more = {"dataset": dataset, "epsilon": 0.01, "max_queries": 5}
        refused(analyst.post("/v1/sessions", json=more), "budget-exhausted")
        assert service.admin.post(f"/v1/sessions/{session['id']}/close").status_code == 200
        refused(analyst.post(f"/v1/sessions/{session['id']}/queries", json=OLD), "session-closed")
        refused(analyst.post("/v1/sessions", json=more), "budget-exhausted")

    def test_access_by_grant(self, service: Service) -> None:
        """With "granted" nobody opens a session without a grant, and a grant of 0 gives nothing; plans stay free, and
        say so to an analyst who has none. Catches the declared access ignored, and the note to who may open.
        """
        dataset = people(service, access="granted")
        analyst = service.principal("analyst", "granted-analyst")
        refused(analyst.post("/v1/sessions", json=session_words(dataset)), "forbidden")
        words = session_words(dataset)
        several = {**{key: words[key] for key in words if key != "mechanism"}, "mechanisms": [words["mechanism"]]}
        workload = {"dataset": dataset, "epsilon": 0.1, "workload": {"marginals": 1}}

        def notes(caller: httpx.Client) -> list[str | None]:
            replies = [caller.post("/v1/plans", json=body) for body in (words, several, workload)]
            assert [reply.status_code for reply in replies] == [200, 200, 200]
            return [reply.json()["note"] for reply in replies]

        assert all(note is not None and "no grant" in note and "ask an admin" in note for note in notes(analyst))
        assert notes(service.admin) == [None, None, None]
        service.admin.put(f"/v1/datasets/{dataset}/grants/granted-analyst", json={"epsilon": 0})
        assert notes(analyst) == [None, None, None]
        problem = refused(analyst.post("/v1/sessions", json=session_words(dataset)), "budget-exhausted")
        assert problem["remaining"] == 0
        service.admin.put(f"/v1/datasets/{dataset}/grants/granted-analyst", json={"epsilon": 1.0})
        open_session(analyst, dataset, epsilon=1.0)
        assert service.admin.get(f"/v1/datasets/{dataset}").json()["access"] == "granted"

    def test_a_grant_that_nobody_could_use(self, service: Service) -> None:
        """Catches a grant that is confirmed to an admin, of which whoever has it is told that he has none."""
        dataset, path = people(service), "/v1/datasets/{}/grants/{}"
        service.principal("auditor", "granted-auditor")
        service.principal("analyst", "late-analyst")
        place = path.format(dataset, "granted-auditor")
        assert "auditor" in refused(service.admin.put(place, json={"epsilon": 0.5}), "conflict")["detail"]
        assert service.admin.put(place, json={"epsilon": 0}).status_code == 200
        assert service.admin.delete(f"/v1/datasets/{dataset}").status_code == 200
        late = service.admin.put(path.format(dataset, "late-analyst"), json={"epsilon": 0.5})
        assert "retired" in refused(late, "conflict")["detail"]

    @pytest.mark.parametrize("epsilon", [-0.1, 1.1, "1", None, True, [1]])
    def test_what_is_no_cap(self, service: Service, epsilon: Any) -> None:
        """Catches a cap that means nothing taken for one."""
        dataset = people(service)
        reply = service.admin.put(f"/v1/datasets/{dataset}/grants/admin", json={"epsilon": epsilon})
        refused(reply, "invalid-request")
        refused(service.admin.put(f"/v1/datasets/{dataset}/grants/nobody", json={"epsilon": 0.1}), "not-found")
        assert dataset not in [row[0] for row in service.rows("grants")]


class TestPurchase:
    def test_a_mass_is_bought_once(self, service: Service, noise: Noise) -> None:
        """Where the number of records is private, the first session that needs it buys a noisy one with a twentieth
        of its share, which is then public; the second buys nothing. Catches a mass used without paying, a purchase
        paid twice, the true number given out.
        """
        dataset = people(service, records_public=False)
        analyst = service.principal("analyst")
        assert "bought" not in service.admin.get(f"/v1/datasets/{dataset}").json()
        refused(analyst.post("/v1/plans", json=session_words(dataset, max_updates=None)), "plan-infeasible")
        first = open_session(analyst, dataset, epsilon=0.4)
        assert first["plan"]["purchase"] is not None
        ledger = check_ledger(service, dataset)
        kinds = [entry["kind"] for entry in ledger["entries"]]
        assert kinds == ["reserve", "purchase"]
        price = Fraction(ledger["entries"][1]["amount"])
        assert 0 < price <= Fraction(ledger["entries"][0]["amount"]) / 20
        assert budget(service, dataset)["spent_epsilon"] == pytest.approx(0.02, abs=1e-6)

        bought = service.admin.get(f"/v1/datasets/{dataset}").json()["bought"]["mass"]["value"]
        # No noise was injected, so what lies above the true number is the public padding.
        assert bought > COUNTS.sum()
        second = open_session(analyst, dataset, epsilon=0.4)
        assert second["plan"]["purchase"] is None
        assert [e["kind"] for e in check_ledger(service, dataset)["entries"]] == [*kinds, "reserve"]
        assert service.admin.get(f"/v1/datasets/{dataset}").json()["bought"]["mass"]["value"] == bought

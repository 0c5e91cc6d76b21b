"""The tables: causes, symptoms and claims. They are contracts, so what they must contain is spelled out here."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from loaderscope import claims
from loaderscope.claims import CLAIMS, LedgerRow, Verdict, ledger_rows
from loaderscope.diagnosis.causes import CAUSES
from loaderscope.diagnosis.symptoms import SYMPTOMS, search, symptom
from loaderscope.errors import BadInputError
from loaderscope.records.base import decode, encode

# Released ids are never renamed. The order is the one in which equal findings are shown.
CAUSE_IDS = {
    "speed": """
        compute-bound no-overlap too-few-workers too-many-workers io-latency io-bandwidth small-files
        read-amplification remote-jitter cpu-bound python-bound gil-contention lock-contention
        thread-oversubscription one-thread-in-worker cpu-affinity interference transfer-bound

        ipc-pickle ipc-bandwidth ipc-object-count ipc-oversized-storage ipc-per-sample collate-bound
        workers-not-worth-it per-item-overhead proxy-rpc

        worker-restart iterator-per-step dataset-pickling repeated-init cache-never-hits sampler-startup
        slow-first-batch slow-samples uneven-batches straggler-worker idle-workers several-pools
    """.split(),
    "memory": """
        dataset-leak consumer-leak copy-on-read duplicated-data prefetch-memory handle-leak shm-exhausted
        fd-exhausted shm-left-behind
    """.split(),
    "correctness": """
        rng-duplicate-workers rng-duplicate-ranks rng-repeats-epochs rng-constant rng-unreproducible
        order-repeats-epochs set-epoch-missing stale-worker-state duplicate-samples missing-samples rank-overlap
        padding-duplicates uneven-ranks undersized-batches truncated-epoch one-shot-iterator
        sorted-without-shuffle samples-replaced shared-transform ragged-batch outlier-sample last-batch
        corrupt-sample
    """.split(),
    "safety": """
        fork-unsafe shared-handle hang worker-crash worker-killed worker-error nested-workers unpicklable
        notebook-class cuda-in-worker bad-configuration timeout-too-short orphaned-workers
    """.split(),
}

# Causes without a row of their own in the table of symptoms. Most are seen by an audit before a person sees them.
SEEN_BY_NO_SYMPTOM = {
    "shm-left-behind",
    "rng-duplicate-ranks",
    "truncated-epoch",
    "one-shot-iterator",
    "sorted-without-shuffle",
    "worker-error",
    "nested-workers",
    "cuda-in-worker",
    "bad-configuration",
    "orphaned-workers",
}
# S7 (low utilisation) names every speed cause, which says little: these are named by no other row.
SEEN_ONLY_BY_S7 = {
    "one-thread-in-worker",
    "proxy-rpc",
    "iterator-per-step",
    "cache-never-hits",
    "several-pools",
}

CLAIM_COUNTS = {"A": 25, "B": 21, "C": 7, "D": 9, "E": 6, "F": 9, "G": 6, "H": 2}
BUILT_CLAIMS = {"A3", "A4", "A5", "A25", "B15", "C1", "C2"}

NOTEBOOKS = {f"{number:02d}" for number in range(15)}


# Causes


def test_causes_are_those_of_the_contract_in_its_order():
    assert list(CAUSES) == [id for ids in CAUSE_IDS.values() for id in ids]


@pytest.mark.parametrize("family", CAUSE_IDS)
def test_family_of_every_cause(family):
    assert [cause.id for cause in CAUSES.values() if cause.family == family] == CAUSE_IDS[family]


def test_causes_cannot_be_changed():
    with pytest.raises(TypeError):
        CAUSES["new"] = CAUSES["hang"]
    with pytest.raises(AttributeError):
        CAUSES["hang"].meaning = "something else"


def test_every_cause_points_to_causes_that_exist_and_not_to_itself():
    for cause in CAUSES.values():
        assert cause.look_alike in CAUSES and cause.look_alike != cause.id, cause.id
        assert set(cause.explains) <= set(CAUSES) - {cause.id}, cause.id
        assert len(set(cause.explains)) == len(cause.explains), cause.id


def _cycle_from(id: str, path: tuple[str, ...] = ()) -> tuple[str, ...]:
    if id in path:
        return (*path, id)
    return next((cycle for child in CAUSES[id].explains if (cycle := _cycle_from(child, (*path, id)))), ())


def test_explanations_do_not_go_round_in_a_circle():
    assert [cycle for id in CAUSES if (cycle := _cycle_from(id))] == []


@pytest.mark.parametrize(
    ("cause", "explained"),
    [
        ("cpu-affinity", "cpu-bound"),
        ("cache-never-hits", "io-latency"),
        ("straggler-worker", "io-latency"),
        ("idle-workers", "io-latency"),
        ("too-many-workers", "python-bound"),
        ("rng-duplicate-workers", "rng-repeats-epochs"),
    ],
)
def test_explanations_the_design_promises(cause, explained):
    assert explained in CAUSES[cause].explains


def test_the_loader_not_being_the_problem_explains_nothing_and_is_explained_by_nothing():
    assert CAUSES["compute-bound"].explains == ()
    assert not any("compute-bound" in cause.explains for cause in CAUSES.values())


def test_only_these_causes_wait_for_the_role():
    # Planted loaders without a role must be told about an order that never changes (set-epoch-missing) and about
    # samples dropped per worker (missing-samples), so these two do not wait for it.
    assert {cause.id for cause in CAUSES.values() if cause.role_dependent} == {
        "sorted-without-shuffle",
        "padding-duplicates",
    }


def test_every_cause_is_taught_somewhere():
    assert {cause.notebook for cause in CAUSES.values()} <= NOTEBOOKS


def _texts(cause):
    return (cause.meaning, cause.decided_by, cause.differs, *cause.fixes)


def test_no_text_of_a_cause_is_empty_or_has_several_lines():
    for cause in CAUSES.values():
        assert len(cause.fixes) >= 2, cause.id
        for text in _texts(cause):
            assert text.strip() == text != "", cause.id
            assert "\n" not in text and "  " not in text, text


def test_meanings_and_differences_are_single_sentences():
    for cause in CAUSES.values():
        for text in (cause.meaning, cause.differs):
            assert text.endswith(".") and ". " not in text, text


def test_no_text_is_said_of_two_causes():
    counts = Counter(text.casefold() for cause in CAUSES.values() for text in _texts(cause))
    assert [text for text, count in counts.items() if count > 1] == []


# Symptoms


def test_symptoms_are_complete_and_in_order():
    assert [row.id for row in SYMPTOMS] == [f"S{number}" for number in range(1, 25)]


def test_every_rival_is_a_cause_and_named_once():
    for row in SYMPTOMS:
        assert row.rivals and set(row.rivals) <= set(CAUSES), row.id
        assert len(set(row.rivals)) == len(row.rivals), row.id
        assert not set(row.other_rivals) & set(CAUSES), row.id


def test_no_text_of_a_symptom_is_empty():
    for row in SYMPTOMS:
        texts = (row.seen, row.seen_zh, row.folk_cause, row.folk_check, row.decides, *row.other_rivals)
        assert all(text.strip() for text in texts), row.id
        assert any("\u4e00" <= character <= "\u9fff" for character in row.seen_zh), row.id
        assert row.notebooks and set(row.notebooks) <= NOTEBOOKS, row.id


def test_no_two_symptoms_look_the_same():
    assert len({row.seen for row in SYMPTOMS}) == len({row.seen_zh for row in SYMPTOMS}) == len(SYMPTOMS)


def test_every_cause_is_a_rival_of_some_symptom_or_listed_as_not():
    named = {id for row in SYMPTOMS for id in row.rivals}
    assert set(CAUSES) - named == SEEN_BY_NO_SYMPTOM


def test_low_utilisation_names_every_speed_cause_and_is_the_only_row_for_few():
    assert set(symptom("S7").rivals) == set(CAUSE_IDS["speed"])
    elsewhere = {id for row in SYMPTOMS if row.id != "S7" for id in row.rivals}
    assert set(CAUSE_IDS["speed"]) - elsewhere == SEEN_ONLY_BY_S7


def test_symptom_by_id():
    assert symptom("S16").rivals[0] == "fork-unsafe"


@pytest.mark.parametrize("id", ["S25", "s1", "", None, []])
def test_an_unknown_symptom_is_refused_with_the_ids(id):
    with pytest.raises(BadInputError, match=r"S1, S2.*S24"):
        symptom(id)


def _found(words):
    return [row.id for row in search(words)]


def test_search_in_english_wants_all_words_in_any_order_and_case():
    assert _found("MEMORY climbs") == ["S4"]
    assert _found("climbs Memory") == ["S4"]
    assert _found("memory elephant") == []


def test_search_in_chinese():
    assert _found("内存 OOM") == ["S4"]
    assert _found("卡死") == ["S16"]
    assert set(_found("内存")) == {"S4", "S8", "S20"}


def test_search_in_both_languages_at_once():
    assert _found("多线程 threads") == ["S17"]


def test_search_takes_chinese_with_and_without_spaces_and_in_full_width():
    assert set(_found("GPU利用率")) == set(_found("GPU 利用率")) == set(_found("ＧＰＵ利用率")) == {"S1", "S2", "S7"}


def test_search_puts_what_is_seen_before_folklore():
    found = _found("pickle")
    assert found[0] == "S12"
    # S2 is cured by persistent_workers in folklore only.
    assert _found("persistent_workers") == ["S2"]
    found = _found("prefetch")
    assert found and all("prefetch" not in symptom(id).seen for id in found)


def test_search_without_words_gives_every_row():
    assert search("  ") == SYMPTOMS


# Claims


def test_claims_are_complete_and_in_order():
    assert list(CLAIMS) == [f"{letter}{n}" for letter, count in CLAIM_COUNTS.items() for n in range(1, count + 1)]


def test_every_claim_says_something_and_has_a_notebook():
    for row in CLAIMS.values():
        assert row.claim.endswith(".") and row.notebook in NOTEBOOKS, row.id
    assert len({row.claim for row in CLAIMS.values()}) == len(CLAIMS)


def test_experiments_are_named_where_they_exist():
    named = {row.id: row.experiment for row in CLAIMS.values() if row.experiment}
    assert named == {id: f"loaderscope.experiments.claims_speed.claim_{id.lower()}" for id in BUILT_CLAIMS}


@pytest.mark.parametrize(
    ("id", "notebook"), [("A3", "02"), ("A25", "02"), ("B15", "01"), ("C1", "02"), ("C2", "01"), ("B10", "12")]
)
def test_notebook_of_a_claim(id, notebook):
    assert CLAIMS[id].notebook == notebook


def test_an_unknown_claim_is_refused_with_the_ids():
    with pytest.raises(BadInputError, match=r"A1, A2.*H2"):
        claims.claim("Z9")


# Verdicts

EVIDENCE = "2 threads: 0.84 times the speed of 1 (n=20 pairs)"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Verdict.confirmed("A4", EVIDENCE),
        lambda: Verdict.refuted("A4", EVIDENCE, reason="on 2 cores"),
        lambda: Verdict.depends("A4", "length of the loop", EVIDENCE, EVIDENCE),
        lambda: Verdict.not_testable("B21", "no GPU here"),
        lambda: Verdict.undecided("A4", "the noise is 40 % of the median", EVIDENCE),
    ],
)
def test_a_verdict_survives_json(make):
    verdict = make()
    again = decode(json.loads(json.dumps(encode(verdict))))
    assert again == verdict
    assert type(again) is Verdict
    assert repr(again) == repr(verdict)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Verdict.confirmed("Z9", EVIDENCE), "no claim with this id"),
        (lambda: Verdict.not_testable("", "no GPU here"), "no claim with this id"),
        (lambda: Verdict.confirmed("A4"), "without evidence"),
        (lambda: Verdict.refuted("A4", "  "), "without evidence"),
        (lambda: Verdict.confirmed("A4", "clearly faster"), "needs its number"),
        (lambda: Verdict.depends("A4", " ", EVIDENCE), "variable that decides"),
        (lambda: Verdict.not_testable("B21", ""), "needs the reason"),
        (lambda: Verdict("A4", "probably", evidence=(EVIDENCE,)), "is none of confirmed, refuted"),
        (lambda: Verdict("A4", "confirmed", evidence=EVIDENCE), "not one string"),
        (lambda: Verdict("A4", "confirmed"), "without evidence"),
    ],
)
def test_a_verdict_that_says_nothing_is_refused(make, message):
    with pytest.raises(BadInputError, match=message):
        make()


def test_a_verdict_on_a_claim_of_a_newer_version_still_opens():
    saved = encode(Verdict.confirmed("A4", EVIDENCE)) | {"claim_id": "K1"}
    assert "not in the ledger of this version" in repr(decode(saved))


def test_a_verdict_shows_claim_verdict_and_evidence():
    shown = repr(Verdict.depends("A4", "length of the loop", EVIDENCE))
    assert CLAIMS["A4"].claim in shown and "depends on length of the loop" in shown and EVIDENCE in shown


def test_a_verdict_without_an_answer_is_a_grey_row_with_its_reason():
    rows = {row.label: row for row in Verdict.not_testable("B21", "no GPU here").rows()}
    assert rows["verdict"].status == "missing"
    assert rows["verdict"].value == "not testable here: no GPU here"


def test_ledger_without_verdicts_says_what_is_missing():
    rows = ledger_rows()
    assert [row.id for row in rows] == list(CLAIMS)
    for row in rows:
        wanted = f"not yet measured here: run notebook {row.notebook}"
        assert row.status == (wanted if row.id in BUILT_CLAIMS else "experiment not built yet")


def test_ledger_shows_verdicts_and_the_later_of_two():
    given = [
        Verdict.confirmed("A4", EVIDENCE),
        Verdict.refuted("A4", EVIDENCE),
        Verdict.depends("B2", "waiting per sample", EVIDENCE),
        Verdict.not_testable("B21", "no GPU here"),
    ]
    rows = {row.id: row for row in ledger_rows(given)}
    assert rows["A4"] == LedgerRow("A4", CLAIMS["A4"].claim, CLAIMS["A4"].figures, "02", "refuted")
    assert rows["B2"].status == "depends on waiting per sample"
    assert rows["B21"].status == "not testable here: no GPU here"


def test_ledger_refuses_a_verdict_it_has_no_row_for():
    with pytest.raises(BadInputError, match="no claim with this id"):
        ledger_rows([decode(encode(Verdict.confirmed("A4", EVIDENCE)) | {"claim_id": "K1"})])

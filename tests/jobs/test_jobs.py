"""Real jobs under the real launcher: whatever happens, the folder records it correctly and no process or file is left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dstui.jobs.store.events import Exited, Line, Metric, Notice, RankState, Started

pytestmark = pytest.mark.launcher

Outcome = dict[str, Any]


def lines_of(outcome: Outcome, rank: int | None) -> list[str]:
    return [event.text for event in outcome["events"] if isinstance(event, Line) and event.rank == rank]


@pytest.mark.scenario("prints_everything")
def test_job_succeeds_if_all_ranks_exit_with_0(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("succeeded", 0)
    assert {rank["state"] for rank in outcome["ranks"].values()} == {"ended"}
    assert outcome["left"] == []


@pytest.mark.scenario("prints_everything")
def test_script_gets_arguments_and_environment_as_from_the_bare_launcher(outcome: Outcome) -> None:
    folder, status = outcome["folder"], outcome["status"]
    for rank in (0, 1):
        facts = json.loads(lines_of(outcome, rank)[1])
        config = str(folder.path / "ds_config.json")
        assert facts["argv"][1:] == [f"--local_rank={rank}", "all:facts", "all:noise", config, 'it\'s a "test" $HOME']
        env = facts["env"]
        assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == (str(rank), str(rank), "2")
        assert env["MASTER_PORT"] == status["command"][status["command"].index("--master_port") + 1]
        assert env["DSTUI_DS_CONFIG"] == config
        assert env["PATH"].startswith(status["command"][0].rpartition("/")[0] + ":")
        assert (facts["cwd"], facts["stdin"]) == (str(folder.path.parent), "/dev/null")
        assert "default_int_handler" in facts["sigint"]


@pytest.mark.scenario("prints_everything")
def test_rank_output_arrives_complete_in_order_and_escaped(outcome: Outcome) -> None:
    for rank in (0, 1):
        shown = lines_of(outcome, rank)[2:]
        assert shown[:4] == ["red", "100%|##| 3/3", "caf\ufffd \ufffd\ufffd", "cleared"]
        assert shown[4].startswith("xxx") and len(shown[4]) < 5000 and shown[4].endswith("(a line of 1,000,000 bytes)")
        assert shown[5:] == ["step 7 loss 0.25", "the last line has no end"]


@pytest.mark.scenario("prints_everything")
def test_events_come_in_order(outcome: Outcome) -> None:
    events = outcome["events"]
    assert isinstance(events[0], Started) and isinstance(events[-1], Exited)
    for rank in (0, 1):
        mine = [event for event in events if getattr(event, "rank", None) == rank]
        assert isinstance(mine[0], RankState) and mine[0].state == "started"
        assert mine[-1] == RankState(rank, mine[0].host, "ended", 0)
        assert Metric(rank, 7, "loss", 0.25) in mine
    view = outcome["follower"].ranks[1]
    assert (view.state, view.exit_code, view.step, view.loss) == ("ended", 0, 7, 0.25)


@pytest.mark.scenario("prints_everything")
def test_ended_job_is_replayed_with_the_same_events(outcome: Outcome) -> None:
    again = {**outcome, "events": outcome["again"]}
    assert [lines_of(again, rank) for rank in (0, 1, None)] == [lines_of(outcome, rank) for rank in (0, 1, None)]
    assert outcome["again"][-1] == outcome["events"][-1]


@pytest.mark.scenario("one_rank_exits")
def test_exit_status_is_that_of_the_first_failed_rank(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("failed", 3)
    assert outcome["ranks"]["0"] == {**outcome["ranks"]["0"], "exit_code": 143, "killed_after": 1}  # ended by its launcher
    assert "killed_after" not in outcome["ranks"]["1"]
    assert outcome["left"] == []


@pytest.mark.scenario("one_rank_is_killed")
def test_killed_rank_ends_the_job_with_137(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("failed", 137)
    assert outcome["left"] == []


@pytest.mark.scenario("the_shim_is_killed")
def test_rank_dies_with_its_shim_and_counts_as_killed(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("failed", 137)
    assert outcome["ranks"]["1"] == {**outcome["ranks"]["1"], "state": "lost", "exit_code": 137}
    assert outcome["rank_gone"]
    assert outcome["left"] == []


@pytest.mark.scenario("the_nodes_launcher_is_killed")
def test_ranks_die_with_their_launcher_and_have_failed(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("failed", 143)
    assert {rank: facts["exit_code"] for rank, facts in outcome["ranks"].items()} == {"0": 143, "1": 137}  # rank 1 ignores SIGTERM
    assert outcome["left"] == []


@pytest.mark.scenario("the_runner_is_killed")
def test_job_survives_the_end_of_the_launchers_runner(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("succeeded", 0)
    assert outcome["left"] == []


@pytest.mark.scenario("stopped")
def test_stop_ends_ranks_that_ignore_sigterm_and_helpers_in_other_sessions(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("stopped", 130)
    assert outcome["report"].left == []
    assert outcome["helper_gone"]
    assert outcome["left"] == []


@pytest.mark.scenario("stopped_politely")
def test_stop_sends_sigterm_to_every_rank_once(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("stopped", 143)
    assert [log.count("asked to end") for log in outcome["logs"]] == [1, 1]


@pytest.mark.scenario("stopped_at_once")
def test_stop_works_before_any_rank_has_started(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("stopped", 143)
    assert outcome["report"].left == [] == outcome["left"]


@pytest.mark.scenario("the_owner_is_killed")
def test_job_stops_when_its_owner_is_gone(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("stopped", 143)
    assert outcome["left"] == []


@pytest.mark.scenario("the_supervisor_is_killed")
def test_job_outlives_its_supervisor_and_gets_a_new_one(outcome: Outcome) -> None:
    assert outcome["alive"] == 2
    assert outcome["supervisors"][0] != outcome["supervisors"][1]
    assert (outcome["state"], outcome["code"]) == ("failed", 4)
    assert outcome["left"] == []


@pytest.mark.scenario("ends_unobserved")
def test_unwritten_end_is_recorded_by_the_next_reader_that_may_act(outcome: Outcome) -> None:
    assert outcome["before"] == "running"
    assert (outcome["state"], outcome["code"]) == ("failed", 5)


@pytest.mark.scenario("stopped_without_supervisor")
def test_stop_works_without_supervisor(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("stopped", 143)
    assert outcome["report"].left == [] == outcome["left"]


@pytest.mark.scenario("everything_is_killed")
def test_job_killed_with_all_its_processes_is_lost(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("lost", 137)
    assert {rank["state"] for rank in outcome["ranks"].values()} == {"lost"}


@pytest.mark.scenario("no_rank_starts")
def test_job_without_any_started_rank_exits_with_1(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("failed", 1)
    assert {rank["state"] for rank in outcome["ranks"].values()} == {"waiting"}
    assert b"--nonsense" in outcome["folder"].launcher_log.read_bytes()


@pytest.mark.scenario("helpers_outlive_their_rank")
def test_processes_that_ranks_leave_behind_end_with_the_job(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("succeeded", 0)
    assert outcome["helper_gone"]
    assert outcome["left"] == []


@pytest.mark.scenario("leftovers")
def test_compile_is_reported_and_only_the_jobs_leftovers_are_removed(outcome: Outcome) -> None:
    notices = outcome["notices"]
    assert [sum(word in notice for notice in notices) for word in ("rank 0 is compiling built", "built was compiled in")] == [1, 1]
    assert (outcome["before"], outcome["after"], outcome["others"]) == (2, [], True)
    assert outcome["locks"] == [False, False]
    assert sum("removed /dev/shm/deepspeed_allreduce_buffer" in notice for notice in notices) == 2


@pytest.mark.scenario("restarted")
def test_job_resumes_from_its_checkpoint_after_a_failure(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"], outcome["status"]["attempt"]) == ("succeeded", 0, 2)
    folder, events = outcome["folder"], outcome["events"]
    facts = json.loads(folder.log(1, attempt=2).read_text().splitlines()[1])
    assert facts["argv"][-2:] == ["--resume", str(outcome["saved"])]
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert "attempt 1 ended with exit status 9 (rank 0 first)" in notices
    assert f"attempt 2 of 3 starts from {outcome['saved']}" in notices


@pytest.mark.scenario("restarted")
def test_follower_reports_every_attempt_to_its_end(outcome: Outcome) -> None:
    ends = [(event.rank, event.exit_code) for event in outcome["events"] if isinstance(event, RankState) and event.state == "ended"]
    assert sorted(ends[:2])[0] == (0, 9) and sorted(ends[2:]) == [(0, 0), (1, 0)]
    assert lines_of(outcome, 1).count("ready") == 2
    assert "made it" in lines_of({"events": outcome["again"]}, 1)


@pytest.mark.scenario("stopped_between_attempts")
def test_stop_works_between_attempts(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"]) == ("stopped", 143)
    assert outcome["status"]["attempt"] == 1


@pytest.mark.scenario("attempts_used_up")
def test_job_that_always_fails_ends_with_its_last_failure(outcome: Outcome) -> None:
    assert (outcome["state"], outcome["code"], outcome["status"]["attempt"]) == ("failed", 6, 2)
    assert outcome["left"] == []


@pytest.mark.scenario("stopped_as_a_build_begins")
def test_stop_at_the_start_of_a_build_leaves_no_lock(outcome: Outcome) -> None:
    assert outcome["state"] == "stopped"
    assert not outcome["lock"]


@pytest.mark.scenario("a_build_is_stopped_without_supervisor")
def test_stopped_build_without_supervisor_leaves_no_lock_and_keeps_others(outcome: Outcome) -> None:
    assert outcome["state"] == "stopped"
    assert outcome["locks"] == [False, True]

//! Recorded answers of Sentinel's Java implementation, replayed against this
//! crate's types.
//!
//! `tests/vectors/FORMAT.md` describes the files. Another folder of the same
//! format can be named by `SENTINEL_VECTORS`. Every answer falls into a class of
//! `replay::classes`: most have to be the same, and the others are listed there
//! with the reason why they differ.

mod replay;

use replay::circuit_breaker::Broken;
use replay::classes::{
    CIRCUIT_BREAKER, FLOW_REJECT, FLOW_THROTTLING, FLOW_WARM_UP, FLOW_WARM_UP_THROTTLING,
    LEAP_ARRAY, OCCUPY, STATISTIC_NODE, SYSTEM,
};
use replay::flow_reject::Chain;
use replay::leap_array::Arrays;
use replay::occupy::Lender;
use replay::shaping::Shaped;
use replay::statistic_node::Nodes;
use replay::system::Protected;

#[test]
fn vectors_leap_array() {
    replay::run::<Arrays>("leap_array", LEAP_ARRAY);
}

#[test]
fn vectors_occupy() {
    replay::run::<Lender>("occupy", OCCUPY);
}

#[test]
fn vectors_flow_reject() {
    replay::run::<Chain>("flow_reject", FLOW_REJECT);
}

#[test]
fn vectors_flow_throttling() {
    replay::run::<Shaped>("flow_throttling", FLOW_THROTTLING);
}

#[test]
fn vectors_flow_warm_up() {
    replay::run::<Shaped>("flow_warm_up", FLOW_WARM_UP);
}

#[test]
fn vectors_flow_warm_up_throttling() {
    replay::run::<Shaped>("flow_warm_up_throttling", FLOW_WARM_UP_THROTTLING);
}

#[test]
fn vectors_statistic_node() {
    replay::run::<Nodes>("statistic_node", STATISTIC_NODE);
}

#[test]
fn vectors_circuit_breaker() {
    replay::run::<Broken>("circuit_breaker", CIRCUIT_BREAKER);
}

#[test]
fn vectors_system() {
    replay::run::<Protected>("system", SYSTEM);
}

#[test]
#[should_panic(expected = "no such operation: fly")]
fn an_unknown_operation_fails() {
    replay::run_text::<Arrays>(
        "{\"case\":\"x\",\"tags\":[],\"config\":{\"sample_count\":2,\"interval_ms\":1000},\
         \"steps\":[{\"t_ms\":0,\"op\":\"fly\",\"expect\":{\"value\":1}}]}",
        LEAP_ARRAY,
    );
}

#[test]
#[should_panic(expected = "not the recorded answer")]
fn a_wrong_answer_fails() {
    replay::run_text::<Arrays>(
        "{\"case\":\"x\",\"tags\":[],\"config\":{\"sample_count\":2,\"interval_ms\":1000},\
         \"steps\":[{\"t_ms\":0,\"op\":\"sum\",\"event\":\"pass\",\"expect\":{\"value\":1}}]}",
        LEAP_ARRAY,
    );
}

#[test]
#[should_panic(expected = "holds no case")]
fn an_empty_file_fails() {
    replay::run_text::<Arrays>("", LEAP_ARRAY);
}

//! Replays recorded answers of Alibaba Sentinel, the Java implementation, against types of this
//! crate.
//!
//! `tests/vectors/FORMAT.md` describes the files. `SENTINEL_VECTORS` can name another folder with
//! files of this format. Every answer belongs to a class of `replay::classes`. Most classes require
//! that our answer equals the recorded one; for all others, the class gives the reason why answers
//! may differ.

use super::replay::circuit_breaker::BreakerSubject;
use super::replay::classes::{
    CIRCUIT_BREAKER, FLOW_REJECT, FLOW_THROTTLING, FLOW_WARM_UP, FLOW_WARM_UP_THROTTLING, KEYED,
    LEAP_ARRAY, OCCUPY, STACK, STATISTIC_NODE, SYSTEM,
};
use super::replay::flow_reject::FlowSubject;
use super::replay::keyed_rule::KeyedSubject;
use super::replay::leap_array::ArraysSubject;
use super::replay::occupy::OccupySubject;
use super::replay::shaping::ShapingSubject;
use super::replay::stack::Stack;
use super::replay::statistic_node::Nodes;
use super::replay::system::SystemSubject;

/// Defines one test for each file, and the list of all files.
macro_rules! replays {
    ($($test:ident: $file:literal, $subject:ty, $classes:expr;)+) => {
        const FILES: &[&str] = &[$($file),+];

        $(
            #[test]
            fn $test() {
                super::replay::run::<$subject>($file, $classes);
            }
        )+
    };
}

replays! {
    vectors_circuit_breaker: "circuit_breaker", BreakerSubject, CIRCUIT_BREAKER;
    vectors_flow_reject: "flow_reject", FlowSubject, FLOW_REJECT;
    vectors_flow_throttling: "flow_throttling", ShapingSubject, FLOW_THROTTLING;
    vectors_flow_warm_up: "flow_warm_up", ShapingSubject, FLOW_WARM_UP;
    vectors_flow_warm_up_throttling: "flow_warm_up_throttling", ShapingSubject, FLOW_WARM_UP_THROTTLING;
    vectors_hot_param: "hot_param", KeyedSubject, KEYED;
    vectors_leap_array: "leap_array", ArraysSubject, LEAP_ARRAY;
    vectors_occupy: "occupy", OccupySubject, OCCUPY;
    vectors_stack: "stack", Stack, STACK;
    vectors_statistic_node: "statistic_node", Nodes, STATISTIC_NODE;
    vectors_system: "system", SystemSubject, SYSTEM;
}

#[test]
fn each_recorded_file_has_a_test() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors");
    let files = std::fs::read_dir(folder).expect("the recorded answers");
    let names = files.map(|file| {
        let name = file.expect("a file").file_name();
        name.into_string().expect("a name of letters")
    });
    let mut names: Vec<_> = names
        .filter_map(|name| Some(name.strip_suffix(".jsonl")?.to_owned()))
        .collect();
    names.sort();
    assert_eq!(names, FILES);
    assert_eq!(names.len(), 11);
}

#[test]
#[should_panic(expected = "no such operation: fly")]
fn an_unknown_operation_fails() {
    super::replay::run_text::<ArraysSubject>(
        "{\"case\":\"x\",\"tags\":[],\"config\":{\"sample_count\":2,\"interval_ms\":1000},\
         \"steps\":[{\"t_ms\":0,\"op\":\"fly\",\"expect\":{\"value\":1}}]}",
        LEAP_ARRAY,
    );
}

#[test]
#[should_panic(expected = "not the recorded answer")]
fn a_wrong_answer_fails() {
    super::replay::run_text::<ArraysSubject>(
        "{\"case\":\"x\",\"tags\":[],\"config\":{\"sample_count\":2,\"interval_ms\":1000},\
         \"steps\":[{\"t_ms\":0,\"op\":\"sum\",\"event\":\"pass\",\"expect\":{\"value\":1}}]}",
        LEAP_ARRAY,
    );
}

#[test]
#[should_panic(expected = "holds no case")]
fn an_empty_file_fails() {
    super::replay::run_text::<ArraysSubject>("", LEAP_ARRAY);
}

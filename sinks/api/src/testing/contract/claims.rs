//! Tables, lanes and streams: who owns what.

use super::{
    Fixture, ITEMS, LINES,
    rig::{Rig, lane, state, table},
};
use crate::{ErrorClass, KeyType, LaneId, LaneState, Offset, Sink, SinkLane, SourceName, TopicId, Unit, Xid};

pub(super) async fn a_table_is_described_with_its_columns_and_its_key_in_key_order(fixture: &impl Fixture) {
    let sink = fixture.sink();

    let items = sink.describe(&table(ITEMS)).await.expect("contract.items is described");
    let lines = sink.describe(&table(LINES)).await.expect("contract.lines is described");

    let names = |shape: &crate::TableShape| shape.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    assert_eq!(items.name, table(ITEMS));
    assert_eq!(names(&items), ["id", "name", "state", "body"]);
    assert_eq!(items.key_types(), Ok(vec![KeyType::Int]));
    assert_eq!(items.range_order(), Ok(()));
    assert_eq!(items.columns.iter().map(|column| column.nullable).collect::<Vec<_>>(), [false, true, false, true]);
    assert!(items.columns[2].has_default);
    assert_eq!(items.removal_hazards, [""; 0]);
    assert_eq!(names(&lines), ["quantity", "line", "code"]);
    assert_eq!(lines.key.iter().map(|column| column.column).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(lines.key_types(), Ok(vec![KeyType::Text, KeyType::Int]));
    assert_eq!(lines.range_order(), Ok(()));
}

pub(super) async fn a_table_that_is_not_there_is_a_configuration_error(fixture: &impl Fixture) {
    let error = fixture.sink().describe(&table("nothing of the kind")).await.expect_err("there is no such table");

    assert_eq!(error.class, ErrorClass::Configuration);
    assert!(error.message.contains("nothing of the kind"), "the message names the table: {}", error.message);
}

pub(super) async fn a_lane_that_never_committed_has_no_state(fixture: &impl Fixture) {
    let mut claimed = fixture.sink().claim(&lane(0)).await.expect("the sink is there");
    let again = fixture.sink().claim(&lane(0)).await.expect("the sink is there");
    let unit = again.state;

    assert_eq!((claimed.state, claimed.other_incarnation), (None, None));
    assert_eq!((unit, again.other_incarnation), (None, None));
    let late = claimed.lane.committed().await.expect_err("the first lane was taken over");
    assert_eq!(late.class, ErrorClass::Fenced);
}

pub(super) async fn a_claim_returns_the_state_committed_last(fixture: &impl Fixture) {
    let plain = LaneState {
        next_offset: Offset(17),
        memory_offset: Offset(5),
        highest_xid: None,
        unknown_past: true,
        partition_count: 12,
    };
    // Epochs of transaction ids: more than 32 bits.
    let rich = LaneState {
        next_offset: Offset(1 << 40),
        highest_xid: Some(Xid((3 << 32) + 9)),
        unknown_past: false,
        ..plain.clone()
    };

    commit_empty(fixture, &lane(0), None, &plain).await;
    let first = fixture.sink().claim(&lane(0)).await.expect("the sink is there");
    commit_empty(fixture, &lane(0), first.state.as_ref(), &rich).await;
    let second = fixture.sink().claim(&lane(0)).await.expect("the sink is there");

    assert_eq!((first.state, first.other_incarnation), (Some(plain), None));
    assert_eq!((second.state, second.other_incarnation), (Some(rich), None));
}

pub(super) async fn lanes_of_other_partitions_topics_and_workers_are_apart(fixture: &impl Fixture) {
    let others = [
        lane(1),
        LaneId { topic: "contract.lines".into(), topic_id: TopicId([2; 16]), ..lane(0) },
        LaneId { name: "another worker".into(), ..lane(0) },
    ];
    let mut rig = Rig::new(fixture).await;

    for (other, next) in others.iter().zip(100..) {
        commit_empty(fixture, other, None, &state(next)).await;
    }
    rig.make_items([1]).await;

    for (other, next) in others.iter().zip(100..) {
        let claimed = fixture.sink().claim(other).await.expect("the sink is there");
        assert_eq!(claimed.state, Some(state(next)), "{other}");
    }
    assert_eq!(rig.lane.committed().await.expect("the lane is this owner's"), rig.state);
}

pub(super) async fn the_state_of_another_incarnation_is_reported_and_not_used(fixture: &impl Fixture) {
    let again = LaneId { topic_id: TopicId([9; 16]), ..lane(0) };
    commit_empty(fixture, &lane(0), None, &state(50)).await;

    // Reported until something is committed in the new incarnation: a worker that stops over it and is started again
    // must see it again.
    for _ in 0..2 {
        let claimed = fixture.sink().claim(&again).await.expect("the sink is there");
        assert_eq!((claimed.state, claimed.other_incarnation), (None, Some(lane(0).topic_id)));
    }
    commit_empty(fixture, &again, None, &state(3)).await;

    let claimed = fixture.sink().claim(&again).await.expect("the sink is there");
    assert_eq!(claimed.state, Some(state(3)));
}

pub(super) async fn a_table_belongs_to_the_stream_that_claimed_it_first(fixture: &impl Fixture) {
    let sink = fixture.sink();
    let again = LaneId { topic_id: TopicId([9; 16]), ..lane(0) };
    let claim = async |name: &str, source: &str, lane: &LaneId| {
        sink.claim_table(&table(name), &SourceName::of_table(source), lane).await.expect("the sink is there")
    };

    let first = claim(ITEMS, "shop.inventory.items", &lane(0)).await;
    let same = claim(ITEMS, "shop.inventory.items", &lane(0)).await;
    let other_partition = claim(ITEMS, "shop.inventory.items", &lane(1)).await;
    let other_table = claim(LINES, "shop.inventory.lines", &lane(0)).await;
    let other_source = claim(ITEMS, "shop.archive.items", &lane(0)).await;
    let other_incarnation = claim(ITEMS, "shop.inventory.items", &again).await;

    assert_eq!([first, same, other_partition, other_table], [None, None, None, None]);
    for holder in [other_source, other_incarnation] {
        let holder = holder.expect("the table is another stream's");
        assert!(holder.contains("shop.inventory.items"), "the holder is named: {holder}");
    }
    assert_eq!(claim(ITEMS, "shop.inventory.items", &lane(0)).await, None);
    let sources = sink.claim(&lane(1)).await.expect("the sink is there").sources;
    let noted = |source: &str, name: &str| (SourceName::of_table(source), table(name));
    let all = [
        noted("shop.archive.items", ITEMS),
        noted("shop.inventory.items", ITEMS),
        noted("shop.inventory.lines", LINES),
    ];
    assert_eq!(sources, all);
    // A topic that was made anew carries what its namesake did.
    let anew = sink.claim(&again).await.expect("the sink is there").sources;
    assert!(anew.contains(&all[1]), "{anew:?}");
}

pub(super) async fn the_budget_names_all_streams_of_a_table_that_another_one_feeds(fixture: &impl Fixture) {
    let sink = fixture.sink();
    let shape = sink.describe(&table(ITEMS)).await.expect("the table is there");
    let mut claimed = sink.claim(&lane(0)).await.expect("the sink is there");

    let source = &SourceName { connector: "shop".into(), ..SourceName::of_table("inventory.items") };
    let mut unit = claimed.lane.begin(None).await.expect("the lane is this owner's");
    let nobodys = unit.removal_budget(&shape, source).await.expect("the budget can be read");
    assert_eq!((nobodys.streams, nobodys.fed), (Vec::<String>::new(), false), "nobody feeds the table yet");
    drop(unit);
    sink.claim_table(&table(ITEMS), source, &lane(0)).await.expect("the sink is there");
    let mut unit = claimed.lane.begin(None).await.expect("the lane is this owner's");
    assert!(unit.removal_budget(&shape, source).await.expect("the budget can be read").fed);
    let one = unit.removal_budget(&shape, source).await.expect("the budget can be read").streams;
    let unsaid = SourceName::of_table("inventory.items");
    let of_unsaid = unit.removal_budget(&shape, &unsaid).await.expect("the budget can be read");
    let of_another_connector = SourceName { connector: "other".into(), ..unsaid.clone() };
    let of_another_connector =
        unit.removal_budget(&shape, &of_another_connector).await.expect("the budget can be read");
    let of_another = unit
        .removal_budget(&shape, &SourceName::of_table("inventory.things"))
        .await
        .expect("the budget can be read")
        .streams;
    drop(unit);
    let moved = LaneId { topic_id: TopicId([9; 16]), ..lane(0) };
    let mut later = sink.claim(&moved).await.expect("the sink is there");
    let mut unit = later.lane.begin(None).await.expect("the lane is this owner's");
    let of_another_topic = unit.removal_budget(&shape, source).await.expect("the budget can be read").streams;
    drop(unit);
    let mut claimed = sink.claim(&lane(0)).await.expect("the sink is there");
    sink.claim_table(&table(ITEMS), &SourceName::of_table("archive.items"), &lane(0)).await.expect("the sink is there");
    let lines = sink.describe(&table(LINES)).await.expect("the table is there");
    sink.claim_table(&table(LINES), &SourceName::of_table("inventory.lines"), &lane(0))
        .await
        .expect("the sink is there");
    let mut unit = claimed.lane.begin(None).await.expect("the lane is this owner's");
    let two = unit.removal_budget(&shape, source).await.expect("the budget can be read").streams;

    assert_eq!(one, Vec::<String>::new());
    assert_eq!((of_unsaid.streams, of_unsaid.fed), (Vec::<String>::new(), true));
    assert_eq!((of_another_connector.streams.len(), of_another_connector.fed), (1, false));
    for other in [&of_another, &of_another_topic] {
        assert!(matches!(&other[..], [only] if only.contains("inventory.items")), "{other:?}");
    }
    drop(unit);
    // A worker of another name, which applies the same topic at its own pace.
    let named = LaneId { name: "another worker".into(), ..lane(1) };
    let mut other = sink.claim(&named).await.expect("the sink is there");
    let mut unit = other.lane.begin(None).await.expect("the lane is this owner's");
    let of_another_name = unit
        .removal_budget(&lines, &SourceName::of_table("inventory.lines"))
        .await
        .expect("the budget can be read")
        .streams;

    assert!(matches!(&of_another_name[..], [only] if only.contains(&lane(0).name)), "{of_another_name:?}");
    assert_eq!(two.len(), 2, "{two:?}");
    assert!(two[0].contains("inventory.items") && two[1].contains("archive.items"), "{two:?}");
}

/// Claims a lane and commits a unit without content.
async fn commit_empty(fixture: &impl Fixture, lane: &LaneId, expected: Option<&LaneState>, next: &LaneState) {
    let mut claimed = fixture.sink().claim(lane).await.expect("the sink is there");
    let unit = claimed.lane.begin(expected).await.expect("the lane is this owner's");
    unit.commit(next).await.expect("the unit can be committed");
}

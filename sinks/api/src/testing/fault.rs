//! Faults to inject, and where they strike.

use std::collections::VecDeque;

use crate::{ErrorClass, SinkError};

/// Something that goes wrong once, at the first operation of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A claim fails as `Transient`; the lane stays with its owner.
    Claim,
    /// A table's shape cannot be read: `Transient`.
    Describe,
    /// A unit of work cannot begin: `Transient`.
    Begin,
    /// A write fails.
    Write(ErrorClass),
    /// A difference cannot be found: `Transient`.
    Difference,
    /// A removal fails as `Transient`.
    Remove,
    /// A removal takes longer than the sink lets it: `Transient`, with the code of PostgreSQL's `statement_timeout`.
    RemoveTimeout,
    /// A commit fails and nothing took effect.
    Commit(ErrorClass),
    /// A commit takes effect and its reply is lost: `Transient`, the outcome unknown to the lane.
    CommitReply,
    /// Another owner claims the lane right before a commit, which so is `Fenced`.
    LaneLost,
    /// The question which state is committed fails as `Transient`.
    Committed,
}

/// Faults that have not struck yet.
#[derive(Debug, Default)]
pub(super) struct Faults {
    waiting: VecDeque<(u32, Fault)>,
}

impl Faults {
    /// Adds a fault that lets `skip` operations of its kind pass.
    pub(super) fn add(&mut self, skip: u32, fault: Fault) {
        self.waiting.push_back((skip, fault));
    }

    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the first waiting fault that `strikes` recognises as one of the operation at hand, if its turn has come.
    pub(super) fn take<T>(&mut self, strikes: impl Fn(Fault) -> Option<T>) -> Option<T> {
        let (index, struck) =
            self.waiting.iter().enumerate().find_map(|(index, (_, fault))| Some((index, strikes(*fault)?)))?;
        if self.waiting[index].0 > 0 {
            self.waiting[index].0 -= 1;
            return None;
        }
        self.waiting.remove(index);
        Some(struck)
    }

    /// Fails as `Transient` when `fault` strikes.
    pub(super) fn check(&mut self, fault: Fault, doing: &str) -> Result<(), SinkError> {
        match self.take(|waiting| (waiting == fault).then_some(())) {
            Some(()) => Err(injected(ErrorClass::Transient, doing)),
            None => Ok(()),
        }
    }
}

pub(super) fn injected(class: ErrorClass, doing: &str) -> SinkError {
    SinkError::new(class, format!("{doing}: injected fault")).code("injected")
}

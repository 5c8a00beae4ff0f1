// SPDX-License-Identifier: GPL-2.0
//! The engine, LibAFL: which input is next.
//!
//! Its guide are the counters of a module that was built for scripts/coverage. Unlike KCOV they have
//! what interrupts, polls and work items do for the processes, and need no kernel that has it. Without
//! counters each input is random.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use libafl::corpus::{Corpus as _, InMemoryCorpus};
use libafl::events::NopEventManager;
use libafl::executors::{Executor, ExitKind, HasObservers};
use libafl::feedbacks::{ConstFeedback, MaxMapFeedback};
use libafl::fuzzer::{Evaluator as _, Fuzzer as _, StdFuzzer};
use libafl::inputs::{BytesInput, HasMutatorBytes as _, ResizableMutator as _};
use libafl::mutators::mutations::{
    BitFlipMutator, ByteAddMutator, ByteFlipMutator, ByteIncMutator, ByteInterestingMutator,
    ByteRandMutator, DwordInterestingMutator, WordAddMutator, WordInterestingMutator,
};
use libafl::mutators::scheduled::StdScheduledMutator;
use libafl::mutators::{MutationResult, Mutator};
use libafl::observers::{CanTrack as _, ExplicitTracking, HitcountsMapObserver, StdMapObserver};
use libafl::schedulers::{IndexesLenTimeMinimizerScheduler, QueueScheduler};
use libafl::stages::StdMutationalStage;
use libafl::state::{HasCorpus, HasRand, StdState};
use libafl_bolts::rands::{Rand, StdRand};
use libafl_bolts::tuples::{tuple_list, tuple_list_type, RefIndexable};
use libafl_bolts::{nonzero, Error, Named};

use crate::call::{RECORD, RECORDS};
use crate::guest::Guest;
use crate::{inputs, write_one, LAST};

/// Random inputs to begin with.
const RANDOM: usize = 32;
/// Mutations of an input: at most two to the power of this.
const STACKED: usize = 4;
/// Seconds between two lines.
const REPORT_EVERY: Duration = Duration::from_secs(10);

type Map = HitcountsMapObserver<StdMapObserver<'static, u8, false>>;
type Tracked = ExplicitTracking<Map, true, false>;
type Observers = tuple_list_type!(Tracked);

/// Runs inputs, and remembers the first that fails.
struct Runner {
    guest: Guest,
    observers: Observers,
    failure: Option<anyhow::Error>,
    /// The counters that have changed in any run.
    reached: Vec<bool>,
}

impl<EM, S, Z> Executor<EM, BytesInput, S, Z> for Runner {
    fn run_target(
        &mut self,
        _: &mut Z,
        _: &mut S,
        _: &mut EM,
        input: &BytesInput,
    ) -> Result<ExitKind, Error> {
        if self.failure.is_none() {
            self.failure = self.guest.run(input.mutator_bytes()).err();
            for (reached, changed) in self.reached.iter_mut().zip(&self.guest.changed) {
                *reached |= *changed != 0;
            }
        }
        let map: &mut Map = self.observers.0.as_mut();
        for (place, changed) in map.iter_mut().zip(&self.guest.changed) {
            *place = *changed;
        }
        Ok(ExitKind::Ok)
    }
}

impl HasObservers for Runner {
    type Observers = Observers;

    fn observers(&self) -> RefIndexable<&Observers, Observers> {
        RefIndexable::from(&self.observers)
    }

    fn observers_mut(&mut self) -> RefIndexable<&mut Observers, Observers> {
        RefIndexable::from(&mut self.observers)
    }
}

/// Random records.
fn random(rand: &mut impl Rand, records: usize) -> Vec<u8> {
    (0..records * RECORD).map(|_| rand.next() as u8).collect()
}

fn below(rand: &mut impl Rand, bound: usize) -> usize {
    std::num::NonZero::new(bound).map_or(0, |bound| rand.below(bound))
}

/// Adds, removes, repeats or moves whole records, or takes some of another input.
struct Records;

impl Named for Records {
    fn name(&self) -> &Cow<'static, str> {
        static NAME: Cow<'static, str> = Cow::Borrowed("Records");
        &NAME
    }
}

impl<S: HasRand + HasCorpus<BytesInput>> Mutator<BytesInput, S> for Records {
    fn mutate(&mut self, state: &mut S, input: &mut BytesInput) -> Result<MutationResult, Error> {
        let mut all: Vec<Vec<u8>> = input
            .mutator_bytes()
            .chunks(RECORD)
            .map(<[u8]>::to_vec)
            .collect();
        let rand = state.rand_mut();
        let (at, from) = (below(rand, all.len() + 1), below(rand, all.len()));
        match below(rand, 5) {
            0 => all.insert(at, random(rand, 1)),
            1 if all.len() > 1 => drop(all.remove(from)),
            2 => all.insert(at, all.get(from).cloned().unwrap_or_default()),
            3 if !all.is_empty() => {
                let to = at % all.len();
                all.swap(from, to);
            }
            _ => {
                let count = 1 + below(rand, 8);
                let kept = state.corpus().count();
                let which = below(state.rand_mut(), kept);
                let Some(id) = state.corpus().ids().nth(which) else {
                    return Ok(MutationResult::Skipped);
                };
                let other = state.corpus().cloned_input_for_id(id)?;
                let theirs = other.mutator_bytes().chunks(RECORD).count();
                let first = below(state.rand_mut(), theirs);
                let theirs = other.mutator_bytes().chunks(RECORD).skip(first).take(count);
                all.splice(at..at, theirs.map(<[u8]>::to_vec));
            }
        }
        all.truncate(RECORDS);
        for record in &mut all {
            record.resize(RECORD, 0);
        }
        let bytes = all.concat();
        input.resize(bytes.len(), 0);
        input.mutator_bytes_mut().copy_from_slice(&bytes);
        Ok(MutationResult::Mutated)
    }
}

/// Runs inputs for some seconds; returns the first failure.
pub(crate) fn run(device: &str, seconds: u64, seed: u64) -> Result<Option<anyhow::Error>> {
    let mut guest = Guest::new(device, Path::new(LAST), false)?;
    guest.bounded = true;
    let counters = guest.changed.len();
    let found = OpenOptions::new().create(true).append(true).open("new");
    let mut found = found.context("new")?;
    let map = StdMapObserver::owned("counters", vec![0; counters.max(1)]);
    let map = HitcountsMapObserver::new(map).track_indices();
    let mut feedback = MaxMapFeedback::new(&map);
    let scheduler = IndexesLenTimeMinimizerScheduler::new(&map, QueueScheduler::new());
    let mut objective = ConstFeedback::new(false);
    let (solutions, corpus) = (InMemoryCorpus::<BytesInput>::new(), InMemoryCorpus::new());
    let rand = StdRand::with_seed(seed);
    let mut state = StdState::new(rand, corpus, solutions, &mut feedback, &mut objective)?;
    let mut fuzzer = StdFuzzer::new(scheduler, feedback, objective);
    let mut runner = Runner {
        guest,
        observers: tuple_list!(map),
        failure: None,
        reached: vec![false; counters],
    };
    let mut manager = NopEventManager::new();
    let mutations = tuple_list!(
        Records,
        Records,
        Records,
        Records,
        Records,
        Records,
        BitFlipMutator::new(),
        ByteFlipMutator::new(),
        ByteIncMutator::new(),
        ByteAddMutator::new(),
        ByteRandMutator::new(),
        ByteRandMutator::new(),
        ByteInterestingMutator::new(),
        WordAddMutator::new(),
        WordInterestingMutator::new(),
        DwordInterestingMutator::new(),
    );
    let mutator = StdScheduledMutator::with_max_stack_pow(mutations, STACKED);
    let mut stages = tuple_list!(StdMutationalStage::with_max_iterations(
        mutator,
        nonzero!(16)
    ));
    let (began, mut said) = (Instant::now(), Instant::now());
    let limit = Duration::from_secs(seconds);
    let start = inputs(Path::new("start"))?;
    let count = start.len();
    for (number, input) in start.into_iter().enumerate() {
        if runner.failure.is_some() || began.elapsed() > limit {
            // It is kept for the next run.
            write_one(&input, &mut found)?;
            continue;
        }
        let input = BytesInput::new(input);
        fuzzer.evaluate_input(&mut state, &mut runner, &mut manager, &input)?;
        if number + 1 == count {
            println!("after the kept inputs {}", line(&state, &runner, began));
        }
    }
    for _ in 0..RANDOM {
        let records = 8 + below(state.rand_mut(), RECORDS - 8);
        let input = BytesInput::new(random(state.rand_mut(), records));
        if runner.failure.is_none() && began.elapsed() < limit {
            fuzzer.evaluate_input(&mut state, &mut runner, &mut manager, &input)?;
        }
    }
    if state.corpus().count() == 0 {
        let input = BytesInput::new(random(state.rand_mut(), RECORDS));
        fuzzer.add_input(&mut state, &mut runner, &mut manager, input)?;
    }
    let mut written = 0;
    while runner.failure.is_none() && began.elapsed() < limit {
        if counters == 0 {
            let records = 1 + below(state.rand_mut(), RECORDS);
            let input = BytesInput::new(random(state.rand_mut(), records));
            fuzzer.evaluate_input(&mut state, &mut runner, &mut manager, &input)?;
        } else {
            fuzzer.fuzz_one(&mut stages, &mut runner, &mut state, &mut manager)?;
        }
        written = write_new(&state, written, &mut found)?;
        if said.elapsed() > REPORT_EVERY {
            said = Instant::now();
            println!("{}", line(&state, &runner, began));
        }
    }
    write_new(&state, written, &mut found)?;
    println!("after {}", line(&state, &runner, began));
    Ok(runner.failure)
}

type State = StdState<InMemoryCorpus<BytesInput>, BytesInput, StdRand, InMemoryCorpus<BytesInput>>;

/// Writes the inputs that are new in the corpus; returns how many it has.
fn write_new(state: &State, written: usize, found: &mut File) -> Result<usize> {
    let corpus = state.corpus();
    for id in corpus.ids().skip(written) {
        write_one(corpus.cloned_input_for_id(id)?.mutator_bytes(), found)?;
    }
    Ok(corpus.count())
}

fn line(state: &State, runner: &Runner, began: Instant) -> String {
    format!(
        "{} s: {} inputs, {} kept, {} of {} counters, {} changes of the device in {:.0} s",
        began.elapsed().as_secs(),
        runner.guest.ran,
        state.corpus().count(),
        runner.reached.iter().filter(|reached| **reached).count(),
        runner.reached.len(),
        runner.guest.acted.0,
        runner.guest.acted.1.as_secs_f64(),
    )
}

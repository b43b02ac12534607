//! The work of one process on one card, in the order in which it was submitted.
//!
//! How device time is modelled:
//!
//! - A card does one thing at a time. So work is done in the order of submission, whatever its stream: that keeps every
//!   promise of streams and events. A kernel takes its whole time however few blocks it has.
//! - Processes take turns, as contexts do on real cards: a process books at most one turn ([`TURN_NS`]) of the shared
//!   card at a time, behind everybody else's, and books the next one when the end of its last is near ([`AHEAD_NS`]).
//!   So n busy processes have an n-th each, however long or short their kernels are; who submits one short kernel and
//!   waits for it gets one short kernel a round. Long kernels are cut into turns.
//! - A turn holds as many kernels as fit. As long as the queue is short the submitting thread books by itself; a
//!   worker thread books what is queued.
//! - A killed process leaves what it has booked: two turns at most.
//! - An event in an idle stream happens when the card gets to the work after it, as on real cards, or when somebody
//!   asks; so two events around work measure the work, not the wait for the turn before it.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, OnceLock},
    time::Duration,
};

use simgpu_device::{Process, now_ns, sleep_until};

use crate::{
    device::{
        host_call::HostCall,
        initialised::{Initialised, initialised},
        interprocess_time::InterprocessTime,
    },
    error::{CuError, CuResult},
    sync::lock,
};

/// Longest stretch of device time booked at once, in nanoseconds: the turn that real drivers give a context by default.
const TURN_NS: u64 = 2_000_000;
/// A process books its next turn this long before the end of its last one, in nanoseconds.
const AHEAD_NS: u64 = 2_000_000;
/// Most pieces of work that wait in a process; whoever submits more has to wait.
const QUEUE_LIMIT: usize = 1024;

/// When everything that was submitted to a stream before is done.
#[derive(Debug, Clone)]
pub(crate) enum Completion {
    /// Known: nanoseconds of the machine's clock.
    At(u64),
    /// Not booked to its end yet.
    Queued(Arc<PendingEnd>),
    /// When an idle card gets to what is submitted next, or when somebody asks.
    NextWork(Arc<PendingEnd>, &'static Engine),
    /// What another process tells.
    Interprocess(Arc<InterprocessTime>),
}

/// The end of a piece of queued work, once it is known.
#[derive(Debug, Default)]
pub(crate) struct PendingEnd {
    end: Mutex<Option<CuResult<u64>>>,
    known: Condvar,
}

impl PendingEnd {
    fn set(&self, end: CuResult<u64>) {
        *lock(&self.end) = Some(end);
        self.known.notify_all();
    }

    fn get(&self) -> Option<CuResult<u64>> {
        *lock(&self.end)
    }

    fn wait(&self) -> CuResult<u64> {
        let mut end = lock(&self.end);
        loop {
            if let Some(end) = *end {
                return end;
            }
            end = self.known.wait(end).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl Completion {
    /// Waits until the moment has come; it gives the moment. Fails when the card was lost before.
    pub(crate) fn wait(&self) -> CuResult<u64> {
        let end = self.known()?;
        sleep_until(end);
        Ok(end)
    }

    /// The moment, once it is known; it may not have come yet.
    pub(crate) fn known(&self) -> CuResult<u64> {
        match self {
            Self::At(end) => Ok(*end),
            Self::Queued(pending) => pending.wait(),
            Self::NextWork(pending, engine) => {
                engine.settle();
                pending.wait()
            }
            Self::Interprocess(time) => Ok(time.wait()),
        }
    }

    /// The moment if it has come, `CUDA_ERROR_NOT_READY` if it has not.
    pub(crate) fn reached(&self) -> CuResult<u64> {
        let end = match self {
            Self::At(end) => Some(*end),
            Self::Queued(pending) => pending.get().transpose()?,
            Self::NextWork(pending, engine) => {
                engine.settle();
                pending.get().transpose()?
            }
            Self::Interprocess(time) => time.get(),
        };
        end.filter(|&end| end <= now_ns()).ok_or(CuError::NOT_READY)
    }
}

#[derive(Debug)]
enum QueuedWork {
    /// Nanoseconds of device time still to be booked.
    Time(u64),
    /// Nothing to do but to wait for work of another card.
    Wait(Completion),
    /// A function to call.
    Call(HostCall),
}

#[derive(Debug)]
struct QueueItem {
    work: QueuedWork,
    done: Arc<PendingEnd>,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<QueueItem>,
    /// When everything booked so far ends.
    booked_end: u64,
    has_worker: bool,
    /// The moment at which the card gets to the next piece of work, where somebody wants to know it.
    mark: Option<Arc<PendingEnd>>,
}

impl Queue {
    /// Books time of the card behind everything booked so far; the mark is when it begins.
    fn book(&mut self, process: Process, card: usize, duration: u64) -> CuResult<u64> {
        let booking = process.book(card, self.booked_end, duration).map_err(CuError::from);
        if let Some(mark) = self.mark.take() {
            mark.set(booking.map(|booking| booking.start));
        }
        let booking = booking?;
        self.booked_end = booking.end;
        Ok(booking.start)
    }

    /// Takes off as many pieces of device time as fit into a turn: how long they are together, and who waits for each
    /// with the time after which it is done. What is longer than the rest of the turn stays, cut short.
    fn next_turn(&mut self) -> (u64, Vec<(u64, Arc<PendingEnd>)>) {
        let (mut length, mut done) = (0, Vec::new());
        while let Some(QueueItem { work: QueuedWork::Time(left), .. }) = self.items.front_mut() {
            if length + *left > TURN_NS {
                *left -= TURN_NS - length;
                return (TURN_NS, done);
            }
            length += *left;
            done.extend(self.items.pop_front().map(|item| (length, item.done)));
        }
        (length, done)
    }
}

/// The queue of one card.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Index of the card in the machine.
    card: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

static ENGINES: [OnceLock<Engine>; simgpu_device::MAX_CARDS] = [const { OnceLock::new() }; _];

/// The engine of the card with index `card` in the machine.
pub(crate) fn engine(card: usize) -> &'static Engine {
    ENGINES[card].get_or_init(|| Engine { card, queue: Mutex::default(), changed: Condvar::new() })
}

impl Engine {
    /// Queues `duration` nanoseconds of device time.
    pub(crate) fn submit_time(&'static self, duration: u64) -> CuResult<Completion> {
        let process = initialised()?.process()?;
        let mut queue = lock(&self.queue);
        if queue.items.is_empty() && duration <= TURN_NS {
            if duration == 0 {
                return Ok(Completion::At(queue.booked_end));
            }
            if queue.booked_end <= now_ns() + AHEAD_NS {
                queue.book(process, self.card, duration)?;
                return Ok(Completion::At(queue.booked_end));
            }
        }
        self.push(queue, QueuedWork::Time(duration))
    }

    /// The moment at which the card gets to what is submitted next.
    pub(crate) fn mark(&'static self) -> Completion {
        let mut queue = lock(&self.queue);
        if let Some(last) = queue.items.back() {
            return Completion::Queued(Arc::clone(&last.done));
        }
        if queue.booked_end > now_ns() {
            return Completion::At(queue.booked_end);
        }
        Completion::NextWork(Arc::clone(queue.mark.get_or_insert_default()), self)
    }

    /// Lets what waits for the next piece of work happen now, or as soon as the card is free.
    fn settle(&self) {
        let mut queue = lock(&self.queue);
        if queue.mark.is_none() {
            return;
        }
        match initialised().and_then(Initialised::process) {
            // Where it fails the mark is told.
            Ok(process) => drop(queue.book(process, self.card, 0)),
            Err(error) => {
                if let Some(mark) = queue.mark.take() {
                    mark.set(Err(error));
                }
            }
        }
    }

    /// Lets what is submitted from now on begin only after `completion`, which may belong to another card.
    pub(crate) fn submit_wait(&'static self, completion: &Completion) -> CuResult {
        let mut queue = lock(&self.queue);
        match completion {
            // What it waits for comes before everything that is submitted from now on.
            Completion::NextWork(_, engine) if std::ptr::eq(*engine, self) => {}
            Completion::At(end) if queue.items.is_empty() => queue.booked_end = queue.booked_end.max(*end),
            _ => {
                self.push(queue, QueuedWork::Wait(completion.clone()))?;
            }
        }
        Ok(())
    }

    /// Queues a call of a function of the program's.
    pub(crate) fn submit_call(&'static self, call: HostCall) -> CuResult<Completion> {
        self.push(lock(&self.queue), QueuedWork::Call(call))
    }

    /// The end of everything submitted so far.
    pub(crate) fn end(&self) -> Completion {
        let queue = lock(&self.queue);
        match queue.items.back() {
            Some(last) => Completion::Queued(Arc::clone(&last.done)),
            None => Completion::At(queue.booked_end),
        }
    }

    fn push(
        &'static self,
        queue: std::sync::MutexGuard<'_, Queue>,
        work: QueuedWork,
    ) -> CuResult<Completion> {
        let mut queue = self
            .changed
            .wait_while(queue, |queue| queue.items.len() >= QUEUE_LIMIT)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if !queue.has_worker {
            self.start_worker()?;
            queue.has_worker = true;
        }
        let done = Arc::new(PendingEnd::default());
        queue.items.push_back(QueueItem { work, done: Arc::clone(&done) });
        self.changed.notify_all();
        Ok(Completion::Queued(done))
    }

    /// Starts the worker with all signals blocked: the program's handlers belong on the program's threads.
    fn start_worker(&'static self) -> CuResult {
        let process = initialised()?.process()?;
        // SAFETY: both sets are ours; the thread's own mask is put back right after.
        let started = unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let started =
                std::thread::Builder::new().name("simgpu".into()).spawn(move || self.work_off(process));
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            started
        };
        started.map(|_| ()).map_err(|_| CuError::OPERATING_SYSTEM)
    }

    /// The worker's life: ends with the process.
    fn work_off(&self, process: Process) {
        loop {
            let queue = lock(&self.queue);
            let queue = self
                .changed
                .wait_while(queue, |queue| queue.items.is_empty())
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            match queue.items.front().map(|item| &item.work) {
                Some(QueuedWork::Time(_)) => self.book_turn(queue, process),
                Some(QueuedWork::Wait(completion)) => {
                    let completion = completion.clone();
                    drop(queue);
                    self.settle();
                    self.finish(completion.wait());
                }
                Some(&QueuedWork::Call(call)) => {
                    let before = queue.booked_end;
                    drop(queue);
                    self.settle();
                    sleep_until(before);
                    // SAFETY: the program gave function and argument for exactly this call.
                    unsafe { (call.function)(call.argument) };
                    self.finish(Ok(now_ns()));
                }
                None => {}
            }
        }
    }

    /// Books the next turn, or waits until it is time to.
    fn book_turn(&self, mut queue: std::sync::MutexGuard<'_, Queue>, process: Process) {
        let now = now_ns();
        if queue.booked_end > now + AHEAD_NS {
            let pause = Duration::from_nanos(queue.booked_end - now - AHEAD_NS);
            drop(queue);
            std::thread::sleep(pause);
            return;
        }
        let (length, done) = queue.next_turn();
        let start = queue.book(process, self.card, length);
        if start.is_err() && done.is_empty() {
            drop(queue);
            self.finish(start);
            return;
        }
        drop(queue);
        self.changed.notify_all();
        for (after, pending) in done {
            pending.set(start.map(|start| start + after));
        }
    }

    /// Takes the first item, which ended at `end`, off the queue.
    fn finish(&self, end: CuResult<u64>) {
        let mut queue = lock(&self.queue);
        if let Ok(end) = end {
            queue.booked_end = queue.booked_end.max(end);
        }
        let item = queue.items.pop_front();
        drop(queue);
        self.changed.notify_all();
        if let Some(item) = item {
            item.done.set(end);
        }
    }
}

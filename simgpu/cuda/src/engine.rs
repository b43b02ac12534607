//! Device time that this process has queued on one card.
//!
//! Work is done in the order in which it was submitted, whatever its stream: that keeps every promise of streams and
//! events, and a card does one thing at a time anyway. Time is booked on the shared card in slices and only a little
//! ahead, so that processes take turns and a killed one leaves at most one slice behind. As long as the queue is that
//! short, the submitting thread books by itself; a worker thread books what is longer.

use std::{
    collections::VecDeque,
    ffi::c_void,
    sync::{Arc, Condvar, Mutex, OnceLock},
    time::Duration,
};

use simgpu_device::{Process, now_ns, sleep_until};

use crate::{
    driver,
    error::{CuError, Res},
    sync::lock,
};

/// Longest stretch of device time booked at once, in nanoseconds.
const SLICE_NS: u64 = 2_000_000;
/// How far ahead of now a process books, in nanoseconds.
const AHEAD_NS: u64 = 4_000_000;
/// Most pieces of work that wait in a process; whoever submits more has to wait.
const QUEUE_LIMIT: usize = 1024;

/// A moment in a stream: when everything submitted before it is done.
#[derive(Debug, Clone)]
pub(crate) enum Point {
    /// Known: nanoseconds of the machine's clock.
    At(u64),
    /// Not booked to its end yet.
    Later(Arc<Ticket>),
}

/// The end of a piece of queued work, once it is known.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    end: Mutex<Option<Res<u64>>>,
    known: Condvar,
}

impl Ticket {
    fn set(&self, end: Res<u64>) {
        *lock(&self.end) = Some(end);
        self.known.notify_all();
    }

    fn get(&self) -> Option<Res<u64>> {
        *lock(&self.end)
    }

    fn wait(&self) -> Res<u64> {
        let mut end = lock(&self.end);
        loop {
            if let Some(end) = *end {
                return end;
            }
            end = self.known.wait(end).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl Point {
    /// Waits until the moment has come; it gives the moment. Fails when the card was lost before.
    pub(crate) fn wait(&self) -> Res<u64> {
        let end = match self {
            Self::At(end) => *end,
            Self::Later(ticket) => ticket.wait()?,
        };
        sleep_until(end);
        Ok(end)
    }

    /// The moment if it has come, `CUDA_ERROR_NOT_READY` if it has not.
    pub(crate) fn reached(&self) -> Res<u64> {
        let end = match self {
            Self::At(end) => Some(*end),
            Self::Later(ticket) => ticket.get().transpose()?,
        };
        end.filter(|&end| end <= now_ns()).ok_or(CuError::NOT_READY)
    }
}

/// A function of the program's that is called when its turn in the stream has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCall {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) argument: *mut c_void,
}

// SAFETY: the program passes both to be used on a thread of the driver's.
unsafe impl Send for HostCall {}
// SAFETY: as above; the driver never looks behind the argument.
unsafe impl Sync for HostCall {}

#[derive(Debug)]
enum Work {
    /// Nanoseconds of device time still to be booked.
    Time(u64),
    /// Nothing to do but to wait for work of another card.
    Wait(Point),
    /// A function to call.
    Call(HostCall),
}

#[derive(Debug)]
struct Item {
    work: Work,
    done: Arc<Ticket>,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// When everything booked so far ends.
    booked_end: u64,
    has_worker: bool,
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
    pub(crate) fn submit_time(&'static self, duration: u64) -> Res<Point> {
        let process = driver::ready()?.process()?;
        let mut queue = lock(&self.queue);
        if queue.items.is_empty() && duration <= SLICE_NS {
            if duration == 0 {
                return Ok(Point::At(queue.booked_end));
            }
            if queue.booked_end <= now_ns() + AHEAD_NS {
                let booking = process.book(self.card, queue.booked_end, duration)?;
                queue.booked_end = booking.end;
                return Ok(Point::At(booking.end));
            }
        }
        self.push(queue, Work::Time(duration))
    }

    /// Lets what is submitted from now on begin only after `point`, which may belong to another card.
    pub(crate) fn submit_wait(&'static self, point: &Point) -> Res {
        let mut queue = lock(&self.queue);
        match point {
            Point::At(end) if queue.items.is_empty() => queue.booked_end = queue.booked_end.max(*end),
            _ => {
                self.push(queue, Work::Wait(point.clone()))?;
            }
        }
        Ok(())
    }

    /// Queues a call of a function of the program's.
    pub(crate) fn submit_call(&'static self, call: HostCall) -> Res<Point> {
        self.push(lock(&self.queue), Work::Call(call))
    }

    /// The end of everything submitted so far.
    pub(crate) fn end(&self) -> Point {
        let queue = lock(&self.queue);
        match queue.items.back() {
            Some(last) => Point::Later(Arc::clone(&last.done)),
            None => Point::At(queue.booked_end),
        }
    }

    fn push(&'static self, queue: std::sync::MutexGuard<'_, Queue>, work: Work) -> Res<Point> {
        let mut queue = self
            .changed
            .wait_while(queue, |queue| queue.items.len() >= QUEUE_LIMIT)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if !queue.has_worker {
            self.start_worker()?;
            queue.has_worker = true;
        }
        let done = Arc::new(Ticket::default());
        queue.items.push_back(Item { work, done: Arc::clone(&done) });
        self.changed.notify_all();
        Ok(Point::Later(done))
    }

    /// Starts the worker with all signals blocked: the program's handlers belong on the program's threads.
    fn start_worker(&'static self) -> Res {
        let process = driver::ready()?.process()?;
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
                Some(&Work::Time(left)) => self.book_slice(queue, process, left),
                Some(Work::Wait(point)) => {
                    let point = point.clone();
                    drop(queue);
                    self.finish(point.wait());
                }
                Some(&Work::Call(call)) => {
                    let before = queue.booked_end;
                    drop(queue);
                    sleep_until(before);
                    // SAFETY: the program gave function and argument for exactly this call.
                    unsafe { (call.function)(call.argument) };
                    self.finish(Ok(now_ns()));
                }
                None => {}
            }
        }
    }

    /// Books the next slice of the first item, or waits until it is time to.
    fn book_slice(&self, mut queue: std::sync::MutexGuard<'_, Queue>, process: Process, left: u64) {
        let now = now_ns();
        if queue.booked_end > now + AHEAD_NS / 2 {
            let pause = Duration::from_nanos(queue.booked_end - now - AHEAD_NS / 2);
            drop(queue);
            std::thread::sleep(pause);
            return;
        }
        match process.book(self.card, queue.booked_end, left.min(SLICE_NS)) {
            Ok(booking) => {
                queue.booked_end = booking.end;
                if left > SLICE_NS {
                    if let Some(item) = queue.items.front_mut() {
                        item.work = Work::Time(left - SLICE_NS);
                    }
                    return;
                }
                drop(queue);
                self.finish(Ok(booking.end));
            }
            Err(error) => {
                drop(queue);
                self.finish(Err(error.into()));
            }
        }
    }

    /// Takes the first item, which ended at `end`, off the queue.
    fn finish(&self, end: Res<u64>) {
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

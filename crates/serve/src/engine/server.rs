//! A server without Ruby: one engine per thread, all on the same listeners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Engine, Error, Events, Handler, Listener, Settings, ShutdownMode, Waker, WorkerTable};

/// The interval at which a stopping server checks whether its threads have ended.
const END_POLL: Duration = Duration::from_millis(10);

/// The time that the threads have to abort their requests.
const GIVE_UP_MAX: Duration = Duration::from_secs(1);

/// Running engines, each in its own thread.
#[derive(Debug)]
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    wakers: Vec<Waker>,
    is_stopping: Arc<AtomicBool>,
    is_late: Arc<AtomicBool>,
}

impl Server {
    /// Starts one thread for each of `handlers`. The threads share the maximum number of connections in `settings`, and
    /// pass failures to `report`.
    ///
    /// # Errors
    /// The system has no descriptors or no threads left.
    pub fn start<H>(
        settings: &Settings,
        listeners: &[Listener],
        handlers: Vec<H>,
        report: fn(&Error),
    ) -> Result<Self, Error>
    where
        H: Handler + Send + 'static,
    {
        let mut server = Self {
            threads: Vec::new(),
            wakers: Vec::new(),
            is_stopping: Arc::default(),
            is_late: Arc::default(),
        };
        let group = WorkerTable::new(handlers.len())?;
        let connections_max = settings.connections_max.div_ceil(handlers.len().max(1));
        let settings = Settings { connections_max, ..settings.clone() };
        for (index, handler) in handlers.into_iter().enumerate() {
            let listeners = listeners.iter().map(Listener::try_clone).collect::<Result<_, _>>()?;
            let engine = Engine::new(settings.clone(), listeners, Some(group.handle(index)))?;
            server.wakers.push(engine.handle().waker);
            let is_stopping = Arc::clone(&server.is_stopping);
            let is_late = Arc::clone(&server.is_late);
            let thread = std::thread::Builder::new()
                .name("serve".into())
                .spawn(move || drive(engine, handler, [&is_stopping, &is_late], report))
                .map_err(|error| Error::system("start a thread", error))?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Tells the threads to stop accepting connections.
    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Stops the server, and waits for at most `limit` until the responses in progress are sent. Requests without a
    /// response by then get 503.
    pub fn end(self, limit: Duration) {
        self.stop();
        self.wait(limit);
        self.is_late.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
        self.wait(GIVE_UP_MAX);
    }

    fn wait(&self, limit: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < limit && !self.threads.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(END_POLL);
        }
    }
}

fn drive(
    mut engine: Engine,
    mut handler: impl Handler,
    [is_stopping, is_late]: [&AtomicBool; 2],
    report: fn(&Error),
) {
    let mut events = Events::new();
    let mut serve_all = |engine: &mut Engine| {
        engine.poll(&mut events, None);
        while engine.turn(&mut handler) {
            engine.poll_if_due(&mut events);
            report_warnings(engine, report);
        }
        report_warnings(engine, report);
    };
    while !is_stopping.load(Ordering::Acquire) {
        serve_all(&mut engine);
    }
    engine.shut_down(ShutdownMode::Drain { closes_for_all: true });
    while engine.connection_count() > 0 && !is_late.load(Ordering::Acquire) {
        serve_all(&mut engine);
    }
    engine.shut_down(ShutdownMode::Abort);
}

fn report_warnings(engine: &mut Engine, report: fn(&Error)) {
    while let Some(error) = engine.warning() {
        report(&error);
    }
}

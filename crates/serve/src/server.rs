//! A server without Ruby: one engine a thread, all on the same listeners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Engine, Error, Events, Fleet, Handler, Listener, Settings, Waker};

/// How often a server that ends looks whether its threads have.
const END_POLL: Duration = Duration::from_millis(10);

/// Engines that run, each in a thread of its own.
#[derive(Debug)]
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    wakers: Vec<Waker>,
    is_stopping: Arc<AtomicBool>,
}

impl Server {
    /// Starts one thread for each of `handlers`.
    ///
    /// # Errors
    /// The system has no descriptors or no threads left.
    pub fn start<H>(
        settings: &Settings,
        listeners: &[Listener],
        handlers: Vec<H>,
    ) -> Result<Self, Error>
    where
        H: Handler + Send + 'static,
    {
        let mut server =
            Self { threads: Vec::new(), wakers: Vec::new(), is_stopping: Arc::default() };
        let fleet = Fleet::new(handlers.len())?;
        for (index, handler) in handlers.into_iter().enumerate() {
            let listeners = listeners.iter().map(Listener::try_clone).collect::<Result<_, _>>()?;
            let engine = Engine::new(settings.clone(), listeners, Some(fleet.member(index)?))?;
            server.wakers.push(engine.waker());
            let is_stopping = Arc::clone(&server.is_stopping);
            let thread = std::thread::Builder::new()
                .name("serve".into())
                .spawn(move || drive(engine, handler, &is_stopping))
                .map_err(|error| Error::system("start a thread", error))?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Accepts nothing more.
    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Stops, and waits until the answers that were begun are sent, `limit` at most.
    pub fn end(self, limit: Duration) {
        self.stop();
        let begun = Instant::now();
        while begun.elapsed() < limit && !self.threads.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(END_POLL);
        }
    }
}

fn drive(mut engine: Engine, mut handler: impl Handler, is_stopping: &AtomicBool) {
    let mut events = Events::new();
    while !is_stopping.load(Ordering::Acquire) {
        engine.poll(&mut events, None);
        serve_all(&mut engine, &mut handler, &mut events);
    }
    engine.drain();
    while engine.connections() > 0 {
        engine.poll(&mut events, None);
        serve_all(&mut engine, &mut handler, &mut events);
    }
}

fn serve_all(engine: &mut Engine, handler: &mut impl Handler, events: &mut Events) {
    while engine.turn(handler) {
        engine.glance(events);
    }
}

//! The Rack server: an engine, the Ruby threads that call the application, and a standby thread.
//!
//! Reading order:
//!
//! 1. `rack_engine`: the server; `ruby_class` and `worker_group` are its classes in Ruby, `options` its configuration.
//! 2. `lead` and `leadership`: the turns of a thread, and which thread leads. `roles` joins the state machine of
//!    `thruway-roles` to the engine; `shared_engine`, `standby` and `gvl_events` serve it while no thread is at the
//!    engine. `collections`: pauses for the collector. `helpers`: the beginning and end of these.
//!    `fibers`: requests that wait without a thread. `lead_fibers`: the turns of a thread that has such requests.
//!    `fiber_work`: a fiber's requests, one after another.
//! 3. `env`: the environment of a request. `request`: a call of the application. `response`, `head_fields`, `body`,
//!    `body_block` and `sender`: from the application's return value to the client's bytes. `sockets`: upgraded
//!    connections.
//! 4. `forks`: processes that the application forks. `process`: a supervisor's system calls. `callbacks`: rare work
//!    is done in Ruby, by `Thruway::Server`. `roots`: objects that Rust keeps alive.

mod body;
mod body_block;
mod callbacks;
mod collections;
mod context;
mod env;
mod fiber_work;
mod fibers;
mod files;
mod forks;
mod gvl_events;
mod head_fields;
mod helpers;
mod herald;
mod lead;
mod lead_fibers;
mod leadership;
mod options;
mod process;
mod rack_engine;
mod request;
mod response;
mod roles;
mod roots;
mod ruby_class;
mod sender;
mod shared_engine;
mod sockets;
mod standby;
mod upgrade;
mod work;
mod worker_group;

pub(crate) use ruby_class::define;

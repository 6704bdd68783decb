//! The native methods of `preload_template.rb`, for which Ruby has no methods itself.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rb_sys::VALUE;
use thruway_boot::Options;
use thruway_preload::key::VOLATILE;
use thruway_preload::open_files;
use thruway_preload::plan::Plan;
use thruway_preload::role::{self, Role};
use thruway_preload::template::{Description, Request, Task, Template};
use thruway_preload::template_folder::{KeyFile, TemplateFolder};
use thruway_preload::{terminal, wire};
use thruway_sys::descriptor;

use super::{effects, guard, notes, process_role};
use crate::ruby::define::{self, Method};
use crate::ruby::{
    FALSE, Gvl, NIL, ProtectedCall, RArray, RModule, RString, TRUE, boolean, number,
};

/// The state of this template, used by the thread that runs `preload_template.rb`. Where two mutexes are locked,
/// `template` is first and `request` second.
struct TemplateState {
    /// The template, from the end of its boot until it ends; children have none.
    template: Mutex<Option<Template>>,
    /// The number of words with which the command of each fork must begin, as in the template's own command.
    same_words: AtomicUsize,
    /// The reason why nothing is preloaded.
    bare: Mutex<String>,
    /// The request for which the template is forking.
    request: Mutex<Option<Request>>,
}

static STATE: TemplateState = TemplateState {
    template: Mutex::new(None),
    same_words: AtomicUsize::new(0),
    bare: Mutex::new(String::new()),
    request: Mutex::new(None),
};

pub(super) fn define(ruby: ProtectedCall, thruway: RModule) {
    let gvl = ruby.gvl();
    let module = define::module_under(ruby, thruway.value(), c"Template");
    define::singleton_method(gvl, module, c"plan", Method::of_0(plan));
    define::singleton_method(gvl, module, c"words", Method::of_0(words));
    define::singleton_method(gvl, module, c"objection", Method::of_0(objection));
    define::singleton_method(
        gvl,
        module,
        c"open_files_objection",
        Method::of_0(open_files_objection),
    );
    define::singleton_method(gvl, module, c"refuse", Method::of_1(refuse));
    define::singleton_method(gvl, module, c"loads", Method::of_1(loads));
    define::singleton_method(gvl, module, c"same_words", Method::of_1(same_words));
    define::singleton_method(gvl, module, c"script", Method::of_1(script));
    define::singleton_method(gvl, module, c"of_words?", Method::of_0(is_of_words));
    define::singleton_method(gvl, module, c"role_of_words", Method::of_0(role_of_words));
    define::singleton_method(gvl, module, c"listen", Method::of_2(listen));
    define::singleton_method(gvl, module, c"bare", Method::of_1(bare));
    define::singleton_method(gvl, module, c"next_request?", Method::of_0(next_request));
    define::singleton_method(gvl, module, c"forked", Method::of_1(forked));
    define::singleton_method(gvl, module, c"failed", Method::of_1(failed));
    define::singleton_method(gvl, module, c"take_over", Method::of_0(take_over));
    define::singleton_method(gvl, module, c"write_output", Method::of_0(write_output));
    define::singleton_method(gvl, module, c"output_count", Method::of_0(output_count));
    define::singleton_method(gvl, module, c"take_output", Method::of_1(take_output));
    define::singleton_method(gvl, module, c"read_all_variables", Method::of_0(read_all_variables));
    define::singleton_method(gvl, module, c"volatile", Method::of_0(volatile));
    define::singleton_method(gvl, module, c"guard", Method::of_2(guard));
    define::singleton_method(gvl, module, c"exclude", Method::of_1(exclude));
    define::singleton_method(gvl, module, c"end", Method::of_0(end));
}

/// The folder and the key of this template; `None` if the folder no longer exists.
fn place() -> Option<(TemplateFolder, u128)> {
    let assignment = process_role::template()?;
    Some((TemplateFolder::at(&assignment.folder).ok()?, assignment.key))
}

/// `[[[path, folders, folders], …], [[name, value or nil], …], arguments, [[name, marshalled value], …]]`. The two
/// lists of a feature are the folders that come first and last in the load path. The last list is the state of Rake's
/// application.
fn plan(ruby: ProtectedCall, _: VALUE) -> VALUE {
    let gvl = ruby.gvl();
    let plan = place().and_then(|(place, key)| Plan::decoded(&place.read(key, KeyFile::Plan)?));
    let Some(plan) = plan else { return NIL };
    let variables = plan.variables.iter().map(|(name, value)| {
        let value = value.as_ref().map_or(NIL, |value| RString::new(gvl, value).value());
        array(gvl, [RString::new(gvl, name).value(), value])
    });
    let features = plan.features.iter().map(|(path, folders)| {
        let folders = [&folders.first, &folders.last].map(|folders| strings(gvl, folders));
        array(gvl, [&[RString::new(gvl, path).value()][..], &folders].concat())
    });
    let rake = plan.rake.iter().map(|(name, value)| {
        array(gvl, [RString::new(gvl, name).value(), RString::new(gvl, value).value()])
    });
    let arguments = strings(gvl, &plan.arguments);
    array(gvl, [array(gvl, features), array(gvl, variables), arguments, array(gvl, rake)])
}

/// The words of the command for which the template was made.
fn words(ruby: ProtectedCall, _: VALUE) -> VALUE {
    let words = place().and_then(|(place, key)| wire::decoded(&place.read(key, KeyFile::Command)?));
    strings(ruby.gvl(), &words.unwrap_or_default())
}

/// The reason why this boot cannot become a template; nil if there is none.
fn objection(ruby: ProtectedCall, _: VALUE) -> VALUE {
    text(ruby, notes::objection())
}

/// The reason why a file that the boot has left open cannot be passed to each child; nil if there is none.
fn open_files_objection(ruby: ProtectedCall, _: VALUE) -> VALUE {
    text(ruby, open_files::objection(notes::known_descriptors()))
}

fn text(ruby: ProtectedCall, text: Option<String>) -> VALUE {
    text.map_or(NIL, |text| RString::new(ruby.gvl(), text.as_bytes()).value())
}

/// `refuse(reason)`: stores the reason why there is no template.
fn refuse(ruby: ProtectedCall, _: VALUE, reason: VALUE) -> VALUE {
    let reason = RString::from_argument(ruby, reason);
    effects::refuse(&reason.to_vec(ruby.gvl()));
    NIL
}

/// `loads(file)`: a file is loaded that must not act; nil: no such file any more.
fn loads(ruby: ProtectedCall, _: VALUE, file: VALUE) -> VALUE {
    let file = (file != NIL).then(|| RString::from_argument(ruby, file).to_vec(ruby.gvl()));
    effects::load(file);
    NIL
}

/// `same_words(count)`: commands that begin with other words are not forked from this template.
fn same_words(_: ProtectedCall, _: VALUE, count: VALUE) -> VALUE {
    STATE.same_words.store(number::small_count(count), Ordering::Relaxed);
    NIL
}

/// `script(path)`: notes the script. Ruby has read at least its beginning, and each child runs the text that was
/// read.
fn script(ruby: ProtectedCall, _: VALUE, path: VALUE) -> VALUE {
    let path = RString::from_argument(ruby, path);
    // The command file is written right before Ruby is started.
    let began_ns = place().and_then(|(place, key)| place.written_ns(key, KeyFile::Command));
    notes::note_script(&path.to_vec(ruby.gvl()), began_ns.unwrap_or(0));
    NIL
}

/// `of_words?`: whether commands with other arguments are not forked from this template, since its boot reads its
/// arguments.
fn is_of_words(_: ProtectedCall, _: VALUE) -> VALUE {
    boolean(process_role::is_of_words())
}

/// `role_of_words`: the variable that makes this process, when started again, a template for its own arguments alone.
fn role_of_words(ruby: ProtectedCall, _: VALUE) -> VALUE {
    let Some(assignment) = process_role::template() else { return NIL };
    let value = Role::TemplateOfWords(assignment.clone()).value();
    let pair = [role::VARIABLE.as_bytes().to_vec(), value.into_encoded_bytes()];
    strings(ruby.gvl(), &pair)
}

/// `bare(reason)`: records why nothing is preloaded.
fn bare(ruby: ProtectedCall, _: VALUE, reason: VALUE) -> VALUE {
    *lock(&STATE.bare) = RString::from_argument(ruby, reason).to_text(ruby.gvl());
    NIL
}

/// `listen(application, features)`: ends the boot. Returns whether the template listens at its socket.
fn listen(ruby: ProtectedCall, _: VALUE, application: VALUE, features: VALUE) -> VALUE {
    let application = RString::from_argument(ruby, application);
    let application = application.to_vec(ruby.gvl());
    let features = RArray::of(ruby.gvl(), features);
    let features = features.map_or(0, |features| features.len(ruby.gvl()));
    boolean(begin(OsStr::from_bytes(&application), features).is_ok())
}

fn begin(application: &OsStr, features: usize) -> io::Result<()> {
    let assignment = process_role::template().ok_or(io::ErrorKind::NotFound)?;
    let place = TemplateFolder::at(&assignment.folder)?;
    // `thruway preload stop` during the boot has removed the template's key.
    place.read(assignment.key, KeyFile::Key).ok_or(io::ErrorKind::NotFound)?;
    let words =
        place.read(assignment.key, KeyFile::Command).and_then(|bytes| wire::decoded(&bytes));
    let words = words.unwrap_or_default();
    let said: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    let read = notes::read_variables().into_iter();
    let read = read.map(|name| (name.as_bytes().to_vec(), process_role::given(name))).collect();
    let description = Description {
        read,
        bare: lock(&STATE.bare).clone(),
        application: application.to_string_lossy().into_owned(),
        command: said.join(" "),
        words,
        same_words: (!process_role::is_of_words())
            .then(|| STATE.same_words.load(Ordering::Relaxed)),
        features,
    };
    let observed = notes::end();
    let template = Template::listen(place, assignment.key, assignment.lock, observed, description)?;
    // Each child gets the terminal of its client.
    terminal::detach()?;
    *lock(&STATE.template) = Some(template);
    Ok(())
}

/// `next_request?`: waits for a command; returns false at the end of the template.
fn next_request(_: ProtectedCall, _: VALUE) -> VALUE {
    let next = lock(&STATE.template).as_mut().map(Template::next_task);
    match next {
        Some(Ok(Task::Fork(request))) => {
            *lock(&STATE.request) = Some(request);
            TRUE
        }
        _ => FALSE,
    }
}

/// `forked(process)`: in the template, records the child that runs the command of the current request.
fn forked(ruby: ProtectedCall, _: VALUE, process: VALUE) -> VALUE {
    let process = integer(ruby, process);
    if let (Some(template), Some(request)) =
        (lock(&STATE.template).as_mut(), lock(&STATE.request).take())
    {
        template.record_fork(request, process);
    }
    NIL
}

/// `failed(reason)`: refuses the current request, for which no child could be forked.
fn failed(ruby: ProtectedCall, _: VALUE, reason: VALUE) -> VALUE {
    let reason = RString::from_argument(ruby, reason);
    if let (Some(template), Some(request)) =
        (lock(&STATE.template).as_ref(), lock(&STATE.request).take())
    {
        template.refuse(&request, &reason.to_text(ruby.gvl()));
    }
    NIL
}

/// In the child: becomes the command's process. Returns `[words, [name, value, name, value, …]]`, or nil for a
/// failure.
fn take_over(ruby: ProtectedCall, _: VALUE) -> VALUE {
    if let Some(template) = lock(&STATE.template).take() {
        template.release_in_child();
    }
    let Some(mut request) = lock(&STATE.request).take() else { return NIL };
    let (words, mut environment) =
        (std::mem::take(&mut request.words), std::mem::take(&mut request.environment));
    if request.take_over().is_err() {
        return NIL;
    }
    keep_report(&mut environment);
    let gvl = ruby.gvl();
    array(gvl, [strings(gvl, &words), strings(gvl, &environment)])
}

/// Limits the report of `--explain` to this process, without its children, as a boot does.
fn keep_report(environment: &mut [Vec<u8>]) {
    let pairs = environment.as_chunks_mut::<2>().0;
    let Some([_, words]) = pairs.iter_mut().find(|[name, _]| name == b"THRUWAY_BOOT") else {
        return;
    };
    if let Some(explaining) =
        Options::words_explaining(OsStr::from_bytes(words), std::process::id())
    {
        *words = explaining.into_bytes();
    }
}

/// `write_output`: in the child, writes the output of the template's boot.
fn write_output(_: ProtectedCall, _: VALUE) -> VALUE {
    for (number, bytes) in notes::output() {
        let write = |stream: BorrowedFd<'_>| -> io::Result<()> {
            use std::io::Write;
            std::fs::File::from(stream.try_clone_to_owned()?).write_all(&bytes)
        };
        // A closed stream drops the output, as it does for any program.
        let _ = descriptor::with(number, write);
    }
    NIL
}

/// `output_count`: the number of writes of the boot to its standard streams.
fn output_count(ruby: ProtectedCall, _: VALUE) -> VALUE {
    number::from_u64(ruby.gvl(), notes::output().len() as u64)
}

/// `take_output(count)`: removes and returns the output after that number of writes, which children then do not write.
fn take_output(ruby: ProtectedCall, _: VALUE, count: VALUE) -> VALUE {
    RString::new(ruby.gvl(), &notes::take_output(number::small_count(count))).value()
}

/// `read_all_variables`: records that the boot has read every variable.
fn read_all_variables(_: ProtectedCall, _: VALUE) -> VALUE {
    VOLATILE.iter().for_each(|name| notes::read_variable(name.as_bytes()));
    NIL
}

/// `volatile`: the names of the variables that are not part of the key.
fn volatile(ruby: ProtectedCall, _: VALUE) -> VALUE {
    strings(ruby.gvl(), &VOLATILE.map(|name| name.as_bytes().to_vec()))
}

/// `guard(paths, proc)`: arms the guard of a child. Before one of the files is required, `proc` compares variables.
fn guard(ruby: ProtectedCall, _: VALUE, paths: VALUE, compare: VALUE) -> VALUE {
    guard::arm(ruby.gvl(), bytes_of(ruby, paths), compare);
    NIL
}

/// `exclude(paths)`: excludes those paths, and everything below them, from the comparison.
fn exclude(ruby: ProtectedCall, _: VALUE, paths: VALUE) -> VALUE {
    bytes_of(ruby, paths).iter().for_each(|path| notes::exclude(path));
    NIL
}

/// The Strings of an Array.
fn bytes_of(ruby: ProtectedCall, all: VALUE) -> Vec<Vec<u8>> {
    RArray::of(ruby.gvl(), all).map_or_else(Vec::new, |all| all.strings(ruby.gvl()))
}

/// Ends the template: clients no longer find it, and the process ends with the last of its commands.
fn end(_: ProtectedCall, _: VALUE) -> VALUE {
    let template = lock(&STATE.template).take();
    if let Some(template) = template {
        template.end();
    }
    NIL
}

fn integer(_: ProtectedCall, value: VALUE) -> i32 {
    // SAFETY: exceptions are caught further up.
    i32::try_from(unsafe { rb_sys::rb_num2int(value) }).unwrap_or(0)
}

fn strings(gvl: Gvl, all: &[Vec<u8>]) -> VALUE {
    array(gvl, all.iter().map(|one| RString::new(gvl, one).value()))
}

fn array(gvl: Gvl, elements: impl IntoIterator<Item = VALUE>) -> VALUE {
    let array = RArray::with_room(gvl, 0);
    elements.into_iter().for_each(|element| array.push(gvl, element));
    array.value()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The compared servers, as data.
//!
//! Arguments are separated by spaces. In arguments and in the configuration, these words are replaced:
//!
//! - `{port}`, `{workers}` and `{threads}`;
//! - `{app}`: the folder of `config.ru`;
//! - `{folder}`: the folder of files;
//! - `{run}`: a temporary folder.

/// A server, and the arguments that start it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    /// Whether the version is part of the name, because packages have several versions.
    pub(crate) tells_version: bool,
    /// Whether clients use TLS.
    pub(crate) is_secure: bool,
    /// The arguments for a Rack application, if the server supports one.
    pub(crate) rack: Option<&'static str>,
    /// The arguments for an application that responds with X-Sendfile, if the server sends the file itself.
    pub(crate) sendfile: Option<&'static str>,
    /// The arguments for a folder, if the server serves one by itself.
    pub(crate) folder: Option<&'static str>,
    /// The contents of `{run}/config`.
    pub(crate) config: &'static str,
}

/// The source of a server's program.
#[derive(Debug)]
pub(crate) enum Program {
    /// The build of this checkout, or another one that `--peer thruway=PATH` names.
    Ours,
    /// A program from a package, found on PATH.
    Installed(&'static str),
    /// A program given by `--peer NAME=PATH`.
    Peer(&'static str),
}

/// The served application or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum App {
    /// `examples/rack_hello`.
    Rack,
    /// `examples/rack_hello` with X-Sendfile responses that become files.
    Sendfile,
    /// `examples/rails_app`.
    Rails,
    /// `benches/serve`.
    Shapes,
    /// `benches/serve/waiting`.
    Waiting,
    /// `benches/serve/rails_waits`.
    RailsWaits,
    /// `benches/serve/sockets`.
    Sockets,
    /// `benches/serve/cable`.
    Cable,
    /// A folder with files of 10 KB and 9 MB.
    Folder,
}

/// The configuration that nginx's documentation recommends, without a limit on requests per connection: the common
/// part, and the given lines of the block `http`.
macro_rules! nginx_config {
    ($http:literal) => {
        concat!(
            "\
daemon off;
worker_processes {workers};
pid {run}/pid;
events { worker_connections 20000; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy;
    fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi;
    scgi_temp_path {run}/scgi;
",
            $http,
            "}\n"
        )
    };
}
pub(super) use nginx_config;

/// The arguments that start nginx with its configuration.
pub(super) const NGINX_ARGUMENTS: &str = "-p {run} -c {run}/config -e {run}/error_log";

pub(crate) const SERVERS: [Server; 9] = [
    Server {
        name: "thruway",
        program: Program::Ours,
        tells_version: false,
        is_secure: false,
        rack: Some("serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production"),
        sendfile: Some(
            "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production \
             --sendfile {app}/tmp",
        ),
        folder: Some("serve {folder} -b tcp://127.0.0.1:{port} -w {workers}"),
        config: "",
    },
    Server {
        name: "iodine",
        program: Program::Peer("iodine"),
        tells_version: false,
        is_secure: false,
        rack: Some("-b 127.0.0.1 -p {port} -w {workers} -t {threads} {app}/config.ru"),
        sendfile: Some(IODINE_WITH_FILES),
        folder: Some(IODINE_WITH_FILES),
        config: "",
    },
    Server {
        name: "Puma",
        program: Program::Installed("puma"),
        tells_version: true,
        is_secure: false,
        rack: Some(PUMA),
        sendfile: None,
        folder: None,
        config: "",
    },
    Server {
        name: "Puma 8",
        program: Program::Peer("puma8"),
        tells_version: false,
        is_secure: false,
        rack: Some(PUMA),
        sendfile: None,
        folder: None,
        config: "",
    },
    Server {
        name: "Falcon",
        program: Program::Peer("falcon"),
        tells_version: false,
        is_secure: false,
        rack: Some(
            "serve --bind http://127.0.0.1:{port} --count {workers} --forked --config {app}/config.ru",
        ),
        sendfile: None,
        folder: None,
        config: "",
    },
    Server {
        name: "Itsi",
        program: Program::Peer("itsi"),
        tells_version: false,
        is_secure: false,
        rack: Some("-b http://127.0.0.1:{port} -w {workers} -t {threads} -r {app}/config.ru serve"),
        sendfile: None,
        folder: None,
        config: "",
    },
    Server {
        name: "unicorn",
        program: Program::Installed("unicorn"),
        tells_version: false,
        is_secure: false,
        rack: Some("-E none -c {run}/config {app}/config.ru"),
        sendfile: None,
        folder: None,
        config: "listen '127.0.0.1:{port}'\nworker_processes {workers}\n",
    },
    Server {
        name: "Pitchfork",
        program: Program::Peer("pitchfork"),
        tells_version: false,
        is_secure: false,
        rack: Some("-E none -c {run}/config {app}/config.ru"),
        sendfile: None,
        folder: None,
        config: "listen '127.0.0.1:{port}'\nworker_processes {workers}\n",
    },
    Server {
        name: "nginx",
        program: Program::Installed("nginx"),
        tells_version: false,
        is_secure: false,
        rack: None,
        sendfile: None,
        folder: Some(NGINX_ARGUMENTS),
        config: nginx_config!("    server { listen 127.0.0.1:{port}; root {folder}; }\n"),
    },
];

/// The servers that keep WebSockets by `rack.upgrade`, and those on which ActionCable runs.
const SOCKET_SERVERS: [&str; 2] = ["thruway", "iodine"];
const CABLE_SERVERS: [&str; 3] = ["thruway", "Puma", "Puma 8"];

/// iodine follows X-Sendfile only if it serves a folder, too.
const IODINE_WITH_FILES: &str =
    "-b 127.0.0.1 -p {port} -w {workers} -t {threads} -www {folder} {app}/config.ru";

const PUMA: &str = "-b tcp://127.0.0.1:{port} -w {workers} -t {threads}:{threads} -e production \
    {app}/config.ru";

impl App {
    /// The folder of its `config.ru`, below the workspace.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Rack | Self::Sendfile | Self::Folder => "examples/rack_hello",
            Self::Rails => "examples/rails_app",
            Self::Shapes => "benches/serve",
            Self::Waiting => "benches/serve/waiting",
            Self::RailsWaits => "benches/serve/rails_waits",
            Self::Sockets => "benches/serve/sockets",
            Self::Cable => "benches/serve/cable",
        }
    }

    /// Seconds of load before each measurement, which warm code and caches. YJIT compiles Rails for that long.
    pub(crate) fn warm_up_seconds(self) -> &'static str {
        if matches!(self, Self::Rails | Self::RailsWaits) { "5" } else { "0.5" }
    }
}

impl Server {
    /// A server for Rack applications only.
    pub(crate) const fn for_rack(
        name: &'static str,
        program: Program,
        rack: &'static str,
        config: &'static str,
    ) -> Self {
        Self {
            name,
            program,
            tells_version: false,
            is_secure: false,
            rack: Some(rack),
            sendfile: None,
            folder: None,
            config,
        }
    }

    /// The arguments that start the server with `app`; `None` if the server does not support `app`.
    pub(crate) fn arguments(&self, app: App) -> Option<&'static str> {
        match app {
            App::Rack | App::Rails | App::Shapes | App::Waiting | App::RailsWaits => self.rack,
            App::Sendfile => self.sendfile,
            App::Folder => self.folder,
            App::Sockets => self.rack.filter(|_| SOCKET_SERVERS.contains(&self.name)),
            App::Cable => self.rack.filter(|_| CABLE_SERVERS.contains(&self.name)),
        }
    }

    /// Whether the server is thruway.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.program, Program::Ours)
    }
}

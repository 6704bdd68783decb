//! The features that a command's runs load before their own work, which a template loads in advance.
//!
//! A run records the start of each file that Ruby loads, and how many features were complete by then. These
//! starts, and the features in order of completion, tell which feature loaded which.

use std::collections::HashMap;

use crate::wire;

/// An environment variable: its name, and its value if set.
pub type Variable = (Vec<u8>, Option<Vec<u8>>);

/// The state of Rake's application: names of its attributes and options, each with the value as Ruby's `Marshal`
/// writes it. A boot may depend on the state: Rails before 7.1 sets `RAILS_ENV` by the names of the tasks.
pub type RakeState = Vec<(Vec<u8>, Vec<u8>)>;

/// The start of a file that Ruby loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadStart {
    /// The path of the file.
    pub path: Vec<u8>,
    /// The number of features that were complete at the start.
    pub complete: usize,
    /// The folders that the command had added to the load path by then.
    pub folders: Folders,
}

/// Folders that a command has added to the load path, without those of gems.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folders {
    /// Folders in front of the original ones.
    pub first: Vec<Vec<u8>>,
    /// Folders behind one of the original ones.
    pub last: Vec<Vec<u8>>,
}

/// The features and settings that a template loads, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Paths of features, each with the load path entries in effect while it is loaded.
    pub features: Vec<(Vec<u8>, Folders)>,
    /// Variables that had changed since the start when the first of Rails' files was loaded.
    pub variables: Vec<Variable>,
    /// The command's arguments at that point.
    pub arguments: Vec<Vec<u8>>,
    /// The state of Rake's application at that point; empty if there was none.
    pub rake: RakeState,
}

/// The record of one run.
#[derive(Debug, Default)]
pub struct Run {
    /// Starts of files, in order.
    pub starts: Vec<LoadStart>,
    /// `$LOADED_FEATURES`, in order of completion.
    pub features: Vec<Vec<u8>>,
    /// See [`Plan`].
    pub variables: Vec<Variable>,
    /// See [`Plan`].
    pub arguments: Vec<Vec<u8>>,
    /// See [`Plan`].
    pub rake: RakeState,
}

/// The kind of feature at which a template stops loading. All later features are the command's own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// A gem, followed by the application's first file.
    Gem,
    /// Rails' `config/application`.
    Application,
    /// Rails' `config/environment`.
    Environment,
}

impl Cut {
    /// Returns the kind of cut that a feature is.
    #[must_use]
    pub fn of(path: &[u8]) -> Self {
        if path.ends_with(b"/config/environment.rb") {
            Self::Environment
        } else if path.ends_with(b"/config/application.rb") {
            Self::Application
        } else {
            Self::Gem
        }
    }
}

impl Run {
    /// Returns the plan of a template for such runs. The plan is empty if nothing is loaded before the
    /// application's own code.
    #[must_use]
    pub fn plan(&self, application: &[u8]) -> Plan {
        let completed: HashMap<_, _> = self
            .features
            .iter()
            .enumerate()
            .map(|(place, path)| (path.as_slice(), place))
            .collect();
        if let Some(cut) = self.rails_cut(&completed) {
            let mut features = self.outermost(&completed, cut);
            features.push(self.starts[cut].to_feature());
            return Plan {
                features,
                variables: self.variables.clone(),
                arguments: self.arguments.clone(),
                rake: self.rake.clone(),
            };
        }
        let is_own = |start: &LoadStart| is_below(&start.path, application);
        let cut = self.starts.iter().position(is_own).unwrap_or(self.starts.len());
        Plan { features: self.outermost(&completed, cut), ..Plan::default() }
    }

    /// Returns the index in `starts` of Rails' environment, or of its application if the environment was never loaded;
    /// `None` if that file raised, because the template would raise as well. `completed` has the features that were
    /// loaded completely.
    fn rails_cut(&self, completed: &HashMap<&[u8], usize>) -> Option<usize> {
        let start = |cut| self.starts.iter().position(|start| Cut::of(&start.path) == cut);
        let place = start(Cut::Environment).or_else(|| start(Cut::Application))?;
        completed.contains_key(self.starts[place].path.as_slice()).then_some(place)
    }

    /// Returns the positions, among completed features, of the features that run a command when loaded. A template must
    /// not load those.
    fn acting(&self, completed: &HashMap<&[u8], usize>) -> Vec<usize> {
        let acting = self.starts.iter().filter(|start| is_acting(&start.path));
        acting.filter_map(|start| completed.get(start.path.as_slice()).copied()).collect()
    }

    /// Returns the features that started and completed before the start with the index `cut`, except those that another
    /// feature of the result loads.
    fn outermost(&self, completed: &HashMap<&[u8], usize>, cut: usize) -> Vec<(Vec<u8>, Folders)> {
        let limit = self.starts.get(cut).map_or(self.features.len(), |start| start.complete);
        let mut features = Vec::new();
        // While fewer features than this are complete, a file that starts was loaded by the last of
        // `features`.
        let mut inside = 0;
        let acted = self.acting(completed);
        for start in &self.starts[..cut] {
            let Some(&place) = completed.get(start.path.as_slice()) else { continue };
            // A feature that runs a command, or loads one that does, is skipped; the features that it loaded
            // are added separately.
            if acted.iter().any(|acting| (start.complete..=place).contains(acting)) {
                continue;
            }
            // Skips a file that the last feature has loaded, and a file whose order is unknown: a second start of the
            // same file, or a start after its completion.
            if start.complete < inside || place >= limit || place < start.complete {
                continue;
            }
            inside = place + 1;
            features.push(start.to_feature());
        }
        features
    }
}

/// Returns names and values that follow each other as pairs; `None` for an odd number of fields.
fn pairs(fields: Vec<Vec<u8>>) -> Option<RakeState> {
    let mut fields = fields.into_iter();
    let mut pairs = Vec::new();
    while let Some(name) = fields.next() {
        pairs.push((name, fields.next()?));
    }
    Some(pairs)
}

impl LoadStart {
    /// Returns the file as a feature of a [`Plan`].
    fn to_feature(&self) -> (Vec<u8>, Folders) {
        (self.path.clone(), self.folders.clone())
    }
}

impl Folders {
    /// Returns the folders of a load path that were not there at the start. Folders of gems are left out,
    /// since activating the gem adds them.
    #[must_use]
    pub fn added(load_path: &[Vec<u8>], start: &[Vec<u8>]) -> Self {
        let known = load_path.iter().position(|folder| start.contains(folder));
        let (first, last) = load_path.split_at(known.unwrap_or(load_path.len()));
        let own = |folders: &[Vec<u8>]| {
            let own = |folder: &&Vec<u8>| !start.contains(folder) && !is_of_gem(folder);
            folders.iter().filter(own).cloned().collect()
        };
        Self { first: own(first), last: own(last) }
    }
}

/// Features whose top level runs a command, or schedules a command for the end of the process.
const ACTING: [&[u8]; 12] = [
    b"/rails/cli.rb",
    b"/rails/commands.rb",
    b"/rails/test_help.rb",
    b"/active_support/testing/autorun.rb",
    b"/minitest/autorun.rb",
    b"/minitest/spec/autorun.rb",
    b"/test/unit.rb",
    b"/test/unit/autorunner.rb",
    b"/rspec/autorun.rb",
    b"/simplecov.rb",
    b"/spring/binstub.rb",
    b"/sinatra/main.rb",
];

fn is_acting(path: &[u8]) -> bool {
    ACTING.iter().any(|end| path.ends_with(end))
}

fn is_of_gem(folder: &[u8]) -> bool {
    has_part(folder, b"/gems/") || has_part(folder, b"/extensions/")
}

fn has_part(path: &[u8], wanted: &[u8]) -> bool {
    path.windows(wanted.len()).any(|part| part == wanted)
}

/// Whether a path is below the application's folder, and not in a gem that is vendored there.
fn is_below(path: &[u8], application: &[u8]) -> bool {
    let rest = path.strip_prefix(application).filter(|rest| rest.starts_with(b"/"));
    rest.is_some_and(|rest| !has_part(rest, b"/gems/"))
}

impl Plan {
    /// Encodes the plan for a file.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        let variables = self.variables.iter().map(|(name, value)| match value {
            Some(value) => wire::encoded(&[name.clone(), value.clone()]),
            None => wire::encoded(std::slice::from_ref(name)),
        });
        let variables: Vec<_> = variables.collect();
        let features = self.features.iter().map(|(path, folders)| {
            let folders = [&folders.first, &folders.last].map(|folders| wire::encoded(folders));
            wire::encoded(&[&[path.clone()][..], &folders].concat())
        });
        let features: Vec<_> = features.collect();
        let arguments = wire::encoded(&self.arguments);
        let rake = self.rake.iter().flat_map(|(name, value)| [name.clone(), value.clone()]);
        let rake = wire::encoded(&rake.collect::<Vec<_>>());
        wire::encoded(&[wire::encoded(&features), wire::encoded(&variables), arguments, rake])
    }

    /// Decodes the output of [`encoded`](Self::encoded); `None` for any other bytes.
    #[must_use]
    pub fn decoded(bytes: &[u8]) -> Option<Self> {
        let [features, variables, arguments, rake] =
            <[Vec<u8>; 4]>::try_from(wire::decoded(bytes)?).ok()?;
        let variable = |bytes: Vec<u8>| {
            let mut fields = wire::decoded(&bytes)?.into_iter();
            Some((fields.next()?, fields.next()))
        };
        let variables = wire::decoded(&variables)?.into_iter().map(variable);
        let feature = |bytes: Vec<u8>| {
            let [path, first, last] = <[Vec<u8>; 3]>::try_from(wire::decoded(&bytes)?).ok()?;
            let folders = Folders { first: wire::decoded(&first)?, last: wire::decoded(&last)? };
            Some((path, folders))
        };
        let features = wire::decoded(&features)?.into_iter().map(feature);
        Some(Self {
            features: features.collect::<Option<_>>()?,
            variables: variables.collect::<Option<_>>()?,
            arguments: wire::decoded(&arguments)?,
            rake: pairs(wire::decoded(&rake)?)?,
        })
    }

    /// Merges the plan of one more run into the known plan.
    #[must_use]
    pub fn after(self, known: Self) -> Self {
        match (self.cut(), known.cut()) {
            // Not every run loads the environment.
            (Cut::Environment, Cut::Application) => known,
            (Cut::Environment | Cut::Application, _) => self,
            (Cut::Gem, _) => self.common(known),
        }
    }

    fn cut(&self) -> Cut {
        self.features.last().map_or(Cut::Gem, |(path, _)| Cut::of(path))
    }

    /// Keeps the common prefix. Features that only some of the runs load may belong to another command.
    fn common(self, mut known: Self) -> Self {
        let same = self.features.iter().zip(&known.features).take_while(|(one, two)| one == two);
        known.features.truncate(same.count());
        known.variables.clear();
        known.arguments.clear();
        known.rake.clear();
        if known.features.is_empty() { self } else { known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records nested loads by name; a trailing `!` marks a file that never completes.
    struct Recorder(Run);

    impl Recorder {
        fn load(&mut self, name: &str, inner: impl FnOnce(&mut Self)) {
            let path = name.trim_end_matches('!').as_bytes().to_vec();
            let complete = self.0.features.len();
            self.0.starts.push(LoadStart {
                path: path.clone(),
                complete,
                folders: Folders::default(),
            });
            inner(self);
            if !name.ends_with('!') {
                self.0.features.push(path);
            }
        }

        fn leaf(&mut self, name: &str) {
            self.load(name, |_| {});
        }
    }

    fn names(plan: &Plan) -> Vec<String> {
        let name = |(path, _): &(Vec<u8>, _)| String::from_utf8_lossy(path).into_owned();
        plan.features.iter().map(name).collect()
    }

    #[test]
    fn features_that_were_complete_before_the_environment_come_first() {
        let mut run = Recorder(Run::default());
        run.0.features.push(b"thread.rb".to_vec());
        run.load("/app/config/boot.rb", |run| run.load("bundler", |run| run.leaf("bundler/a")));
        run.load("rails/commands!", |run| {
            run.load("rails/command", |run| run.leaf("thor"));
            run.leaf("runner");
            run.load("/app/config/application.rb", |run| run.leaf("rails"));
            run.load("/app/config/environment.rb", |run| run.leaf("/app/app/x.rb"));
            run.leaf("late");
        });
        let plan = run.0.plan(b"/app");
        assert_eq!(
            names(&plan),
            [
                "/app/config/boot.rb",
                "rails/command",
                "runner",
                "/app/config/application.rb",
                "/app/config/environment.rb"
            ]
        );
    }

    /// Follows Rails 8.1's `rails test`: the command returns first, and the tests run while Ruby exits.
    #[test]
    fn a_feature_that_runs_a_command_is_not_loaded_and_the_features_that_it_loaded_are() {
        let mut run = Recorder(Run::default());
        run.load("/app/config/boot.rb", |run| run.leaf("bundler"));
        run.load("/gem/outer.rb", |run| {
            run.load("/gem/rails/commands.rb", |run| {
                run.leaf("rails/command");
                run.load("/gem/minitest/autorun.rb", |run| run.leaf("minitest"));
            });
            run.leaf("late");
        });
        run.load("/app/config/environment.rb", |run| run.leaf("/app/config/application.rb"));
        assert_eq!(
            names(&run.0.plan(b"/app")),
            [
                "/app/config/boot.rb",
                "rails/command",
                "minitest",
                "late",
                "/app/config/environment.rb"
            ]
        );
    }

    #[test]
    fn without_an_environment_the_applications_first_file_is_the_cut() {
        let mut run = Recorder(Run::default());
        run.load("rake", |run| run.leaf("rake/a"));
        run.leaf("/app/vendor/gems/x/lib/x.rb");
        run.load("/app/Rakefile!", |run| run.leaf("rake/testtask"));
        assert_eq!(names(&run.0.plan(b"/app")), ["rake", "/app/vendor/gems/x/lib/x.rb"]);
        assert_eq!(names(&run.0.plan(b"/elsewhere")).len(), 3);
    }

    #[test]
    fn an_environment_that_raised_is_no_cut() {
        let mut run = Recorder(Run::default());
        run.leaf("rake");
        run.leaf("/app/config/environment.rb!");
        assert_eq!(names(&run.0.plan(b"/app")), ["rake"]);
    }

    fn paths(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn folders_that_a_command_has_put_into_the_load_path_are_recognized() {
        let start = paths(&["/site", "/ruby"]);
        let now = ["/own/lib", "/site", "/x/gems/a-1/lib", "/x/extensions/a-1", "/ruby", "late"];
        let added = Folders::added(&paths(&now), &start);
        assert_eq!((added.first, added.last), (paths(&["/own/lib"]), paths(&["late"])));
        assert_eq!(Folders::added(&start, &start), Folders::default());
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let plan = Plan {
            features: vec![
                (b"a".to_vec(), Folders { first: paths(&["/x", "/y"]), last: paths(&["/z"]) }),
                (b"b".to_vec(), Folders::default()),
            ],
            variables: vec![(b"A".to_vec(), Some(b"1".to_vec())), (b"B".to_vec(), None)],
            arguments: paths(&["x", ""]),
            rake: vec![(b"top_level_tasks".to_vec(), b"\x04\x08[\0".to_vec())],
        };
        assert_eq!(Plan::decoded(&plan.encoded()), Some(plan));
        assert_eq!(Plan::decoded(b"1"), None);
    }

    #[test]
    fn without_an_environment_rails_application_is_the_cut() {
        let mut run = Recorder(Run::default());
        run.load("rake", |run| run.leaf("rake/a"));
        run.load("/app/Rakefile!", |run| {
            run.load("/app/config/application.rb", |run| run.leaf("rails"));
            run.leaf("rake/testtask");
        });
        assert_eq!(names(&run.0.plan(b"/app")), ["rake", "/app/config/application.rb"]);
    }

    #[test]
    fn an_environment_that_raised_after_its_application_is_no_cut() {
        let mut run = Recorder(Run::default());
        run.leaf("rake");
        run.leaf("/app/config/application.rb");
        run.leaf("/app/config/environment.rb!");
        assert_eq!(names(&run.0.plan(b"/app")), ["rake"]);
    }

    fn plan(names: &[&str]) -> Plan {
        let features = paths(names).into_iter().map(|name| (name, Folders::default())).collect();
        Plan { features, ..Plan::default() }
    }

    #[test]
    fn the_common_beginning_of_two_runs_is_kept() {
        assert_eq!(plan(&["a", "b", "c"]).after(plan(&["a", "b", "d"])), plan(&["a", "b"]));
        assert_eq!(plan(&["b"]).after(plan(&["a", "b"])), plan(&["b"]));
        let mut known = plan(&["a", "/config/environment.rb"]);
        known.variables.push((b"A".to_vec(), None));
        assert_eq!(plan(&["a"]).after(known.clone()), plan(&["a"]));
        assert_eq!(known.clone().after(plan(&["a"])), known);
    }

    #[test]
    fn the_environment_is_loaded_if_every_run_loads_it() {
        let (less, more) = (plan(&["/config/application.rb"]), plan(&["/config/environment.rb"]));
        assert_eq!(more.clone().after(less.clone()), less);
        assert_eq!(less.clone().after(more), less);
    }
}

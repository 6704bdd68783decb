//! Which features a command's runs load before its own work: what a template loads in advance.
//!
//! A run notes the start of each file that Ruby loads, and how many features were complete by then. From that, and
//! from the features in the order in which they were completed, it follows which one loaded which.

use std::collections::HashMap;

use crate::wire;

/// A variable's name, and its value if it has one.
pub type Variable = (Vec<u8>, Option<Vec<u8>>);

/// A file that Ruby begins to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// Its path.
    pub path: Vec<u8>,
    /// How many features were complete.
    pub complete: usize,
    /// What the command had put into the load path by then.
    pub folders: Folders,
}

/// Folders that a command has put into the load path, but for those of gems.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folders {
    /// Before those that were there when it began.
    pub first: Vec<Vec<u8>>,
    /// Behind one of those.
    pub last: Vec<Vec<u8>>,
}

/// What a template loads, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Paths of features, and what the load path has while they are loaded.
    pub features: Vec<(Vec<u8>, Folders)>,
    /// Variables that were not as at the start when the first of Rails' files was begun.
    pub variables: Vec<Variable>,
    /// The command's arguments, as it had left them by then.
    pub arguments: Vec<Vec<u8>>,
}

/// What a run was seen to do.
#[derive(Debug, Default)]
pub struct Run {
    /// Files in the order in which they were begun.
    pub begun: Vec<Begun>,
    /// `$LOADED_FEATURES`: in the order in which they were completed.
    pub features: Vec<Vec<u8>>,
    /// As of [`Plan`].
    pub variables: Vec<Variable>,
    /// As of [`Plan`].
    pub arguments: Vec<Vec<u8>>,
}

/// The last thing that a template loads: what comes after it is the command's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// A gem: the application's first file comes after it.
    Gem,
    /// Rails' `config/application`.
    Application,
    /// Rails' `config/environment`.
    Environment,
}

impl Cut {
    /// What kind of cut a feature is.
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
    /// What a template for such runs loads; nothing, if they have nothing of their own in advance.
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
            features.push(self.begun[cut].feature());
            let (variables, arguments) = (self.variables.clone(), self.arguments.clone());
            return Plan { features, variables, arguments };
        }
        let is_own = |begun: &Begun| is_below(&begun.path, application);
        let cut = self.begun.iter().position(is_own).unwrap_or(self.begun.len());
        Plan { features: self.outermost(&completed, cut), ..Plan::default() }
    }

    /// Where Rails' environment was begun, or its application if the environment never was. A file that raised is
    /// no cut.
    fn rails_cut(&self, completed: &HashMap<&[u8], usize>) -> Option<usize> {
        let begun = |cut| self.begun.iter().position(|begun| Cut::of(&begun.path) == cut);
        let place = begun(Cut::Environment).or_else(|| begun(Cut::Application))?;
        completed.contains_key(self.begun[place].path.as_slice()).then_some(place)
    }

    /// Where features are that act as they are loaded: a template that loaded one would run a command.
    fn acting(&self, completed: &HashMap<&[u8], usize>) -> Vec<usize> {
        let acting = self.begun.iter().filter(|begun| is_acting(&begun.path));
        acting.filter_map(|begun| completed.get(begun.path.as_slice()).copied()).collect()
    }

    /// The features that were begun and completed before `cut`, without those that another of them loaded.
    fn outermost(&self, completed: &HashMap<&[u8], usize>, cut: usize) -> Vec<(Vec<u8>, Folders)> {
        let limit = self.begun.get(cut).map_or(self.features.len(), |begun| begun.complete);
        let mut features = Vec::new();
        // While so many are complete, what begins was begun by the last one of `features`.
        let mut inside = 0;
        let acted = self.acting(completed);
        for begun in &self.begun[..cut] {
            let Some(&place) = completed.get(begun.path.as_slice()) else { continue };
            // What it loaded is loaded in its place.
            if acted.iter().any(|acting| (begun.complete..=place).contains(acting)) {
                continue;
            }
            // Loaded again, or complete before it was begun: it is not this feature.
            if begun.complete < inside || place >= limit || place < begun.complete {
                continue;
            }
            inside = place + 1;
            features.push(begun.feature());
        }
        features
    }
}

impl Begun {
    fn feature(&self) -> (Vec<u8>, Folders) {
        (self.path.clone(), self.folders.clone())
    }
}

impl Folders {
    /// What a load path has that it had not at the start. A gem's folders come by its activation.
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

/// Features whose top level runs a command, or has a command run as Ruby ends.
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

/// Whether a path is below the application's folder, and not that of a gem that is kept there.
fn is_below(path: &[u8], application: &[u8]) -> bool {
    let rest = path.strip_prefix(application).filter(|rest| rest.starts_with(b"/"));
    rest.is_some_and(|rest| !has_part(rest, b"/gems/"))
}

impl Plan {
    /// As bytes, for a file.
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
        wire::encoded(&[wire::encoded(&features), wire::encoded(&variables), arguments])
    }

    /// What [`encoded`](Self::encoded) wrote; `None` for other bytes.
    #[must_use]
    pub fn decoded(bytes: &[u8]) -> Option<Self> {
        let [features, variables, arguments] =
            <[Vec<u8>; 3]>::try_from(wire::decoded(bytes)?).ok()?;
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
        })
    }

    /// What is learned from one more run.
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

    /// What not every run loads may be another command's.
    fn common(self, mut known: Self) -> Self {
        let same = self.features.iter().zip(&known.features).take_while(|(one, two)| one == two);
        known.features.truncate(same.count());
        known.variables.clear();
        known.arguments.clear();
        if known.features.is_empty() { self } else { known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nested files: a name, and what it loads. `!` is a file that is never complete.
    struct Recorder(Run);

    impl Recorder {
        fn load(&mut self, name: &str, inner: impl FnOnce(&mut Self)) {
            let path = name.trim_end_matches('!').as_bytes().to_vec();
            let complete = self.0.features.len();
            self.0.begun.push(Begun { path: path.clone(), complete, folders: Folders::default() });
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
    fn what_was_complete_before_the_environment_comes_first() {
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

    /// As Rails 8.1's `rails test` does: the command has returned when Ruby, which ends, runs the tests.
    #[test]
    fn what_acts_is_not_loaded_though_it_was_complete_and_what_it_loaded_is() {
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
    fn what_a_command_has_put_into_the_load_path_is_known_by_what_was_there() {
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
    fn what_two_runs_begin_with_is_common() {
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

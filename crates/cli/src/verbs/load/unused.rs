//! Refuses options that would have no effect, because no client of the run uses them.

use thruway_load::{Class, ClientKind};

use super::arguments::Load;
use super::class::ClassText;
use crate::output::Failure;

const OF_DEPTH: &str = "the option is for greedy, pipelined and scheduled clients without depth=D, \
                        and not for broadcasts with --rate";

impl Load {
    /// Refuses an option that no class of the run uses. `texts` are the classes as written.
    pub(super) fn refuse_unused(
        &self,
        texts: &[ClassText],
        classes: &[Class],
    ) -> Result<(), Failure> {
        if let Some((option, hint)) = self.unused(texts, classes) {
            let message = format!("{option} has no effect in this run");
            return Err(Failure::new(message).hint(hint));
        }
        let needs_kept = |class: &&Class| class.depth > 1 || class.kind == ClientKind::Idle;
        match classes.iter().filter(|_| self.no_keep_alive).find(needs_kept) {
            Some(class) => {
                let name = class.kind.name();
                Err(Failure::new(format_args!("--no-keep-alive is not for {name} clients"))
                    .hint("leave out --no-keep-alive, or idle clients and those with depth=D"))
            }
            None => Ok(()),
        }
    }

    /// Returns the first option without effect, and a hint about its purpose.
    fn unused(
        &self,
        texts: &[ClassText],
        classes: &[Class],
    ) -> Option<(&'static str, &'static str)> {
        let is_unheeded = |option| !texts.iter().any(|class| class.heeds(option));
        let is_shallow = is_unheeded("depth") || self.broadcast && self.rate.is_some();
        let is_judged = classes.iter().any(|class| class.kind.is_judged());
        let all = [
            (
                self.arrivals.is_some() && is_unheeded("arrivals"),
                "--arrivals",
                "the option is for requests that leave at a rate: add --rate R, \
                 or a --class scheduled=N,rate=R without arrivals=HOW",
            ),
            (
                self.burst.is_some() && is_unheeded("burst"),
                "--burst",
                "the option is for requests that leave at a rate: add --rate R, \
                 or a --class scheduled=N,rate=R without burst=N",
            ),
            (
                self.pause.is_some() && is_unheeded("pause"),
                "--pause",
                "the option is for polite clients: add some, as with --mix greedy=9,polite=1, \
                 or a --class polite=N without pause=MS",
            ),
            (self.pipeline.is_some() && is_shallow, "--pipeline", OF_DEPTH),
            (self.streams.is_some() && is_shallow, "--streams", OF_DEPTH),
            (
                !self.weights.is_empty() && is_unheeded("url"),
                "--weights",
                "the option is for classes that request all URLs: leave out --weights, or url=K of a class",
            ),
            (
                self.fair.is_some() && !is_judged,
                "--fair",
                "the fairness of slow and idle clients is not measured: \
                 add greedy, pipelined, polite or scheduled ones",
            ),
        ];
        all.into_iter().find(|(is_vain, ..)| *is_vain).map(|(_, option, hint)| (option, hint))
    }
}

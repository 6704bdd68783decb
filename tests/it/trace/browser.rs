//! The page of a recording, in Chromium: a click goes into the treemap, words filter the table.

use std::process::Command;

use serde_json::{Value, json};

use super::{Place, has, report, trace};
use crate::browser::Browser;
use crate::{stderr, thruway};

const NAMES: &str =
    "[...document.querySelectorAll('#names tbody tr')].map((row) => row.cells[0].textContent)";

/// Makes the page of a fresh recording: a shell searches a command in two folders of its own.
fn page(place: &Place) -> (std::path::PathBuf, Vec<Value>) {
    place.file("tools/one/other", "");
    place.file("tools/two/other", "");
    let (recording, page) = (place.path().join("recording"), place.path().join("page.html"));
    let root = place.path().display();
    let path = format!("{root}/tools/one:{root}/tools/two:/usr/bin:/bin");
    let script = "for i in 1 2 3 4 5 6; do env true; no-such-tool 2>/dev/null; done";
    let options = ["-o", recording.to_str().expect("text")];
    // The libraries of the build are searched for in folders of their own, with a hundred times as many look-ups.
    let mut shell = Command::new("sh");
    trace(&options, shell.args(["-c", script]).env("PATH", path).env_remove("LD_LIBRARY_PATH"));
    let mut command = thruway();
    command.args(["trace", "--html"]).arg(&page).arg("--from").arg(&recording);
    assert!(command.output().expect("thruway starts").status.success());
    (page, report(&recording))
}

#[test]
fn the_page_works_in_a_browser() {
    if !has("chromium") {
        return;
    }
    let place = Place::new();
    let (page, report) = page(&place);
    let mut browser = Browser::start(place.path());
    // A window that gets its size later draws the map anew.
    let size = json!({ "width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    browser.ask("Emulation.setDeviceMetricsOverride", size);
    let file = format!("file://{}", page.display());
    browser.open(&file);

    let shown = browser.value("document.querySelector('#sums b').textContent.replaceAll(',', '')");
    assert_eq!(shown.as_str(), Some(report[0]["lookups"].to_string().as_str()));
    let all = browser.value(&format!("{NAMES}.length")).as_u64().expect("a count");
    assert!(browser.value("document.querySelectorAll('#advice li').length").as_u64() > Some(1));
    assert!(browser.value("document.querySelectorAll('#time rect').length").as_u64() > Some(1));

    // The test descends into the treemap until the map shows one of its folders.
    let way = place.path().join("tools/one").display().to_string();
    for _ in 0..10 {
        if browser
            .value("document.querySelector('#filter').value")
            .as_str()
            .is_some_and(|path| path.ends_with("/tools/one/"))
        {
            break;
        }
        browser.value(&format!(
            "(() => {{ const way = '{way}/'; const leads = (cell) => \
             way.startsWith(cell.title.split('\\n')[0].replace(/\\/$/, '') + '/'); \
             [...document.querySelectorAll('#map .cell')].findLast(leads).click(); }})()"
        ));
    }
    let names = browser.value(NAMES);
    let names: Vec<_> = names.as_array().expect("rows").iter().filter_map(Value::as_str).collect();
    assert!(!names.is_empty() && (names.len() as u64) < all);
    assert!(names.iter().all(|name| name.contains("/tools/one/")), "{names:?}");

    // The typed text filters the table.
    browser.click("#crumbs button");
    assert_eq!(browser.value(&format!("{NAMES}.length")), all);
    browser.click("#filter");
    browser.type_text("no-such-tool");
    let names = browser.value(NAMES);
    let names = names.as_array().expect("rows");
    assert_eq!(names.len(), 4, "a folder of PATH each: {names:?}");
    assert_eq!(browser.requested, [file], "nothing else is asked for");
}

/// Asks for 30 files that are not there in one function, and for one that is there in another.
const ASKING: &str = r#"
#include <stdio.h>
#include <unistd.h>
#define APART __attribute__((noinline)) static
APART int find(int i) {
  char name[64];
  snprintf(name, sizeof name, "/nowhere/<b>%d", i);
  return access(name, F_OK) + 1;
}
APART int search(void) {
  int all = 0;
  for (int i = 0; i < 30; i++)
    all += find(i);
  return all;
}
APART int check(void) { return access("/", F_OK) + 1; }
int main(void) { return search() + check() - 1; }
"#;

#[test]
fn the_page_shows_the_stacks() {
    if !has("chromium") {
        return;
    }
    let place = Place::new();
    let page = place.path().join("page.html");
    let mut program = Command::new(place.program("asking", ASKING, &["-g", "-O1"]));
    // Under cargo, the loader would search cargo's folders, and ask more often than the program.
    program.env_remove("LD_LIBRARY_PATH");
    let options = ["--stacks", "-q", "--html", page.to_str().expect("text")];
    let output = trace(&options, &mut program);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut browser = Browser::start(place.path());
    let size = json!({ "width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    browser.ask("Emulation.setDeviceMetricsOverride", size);
    browser.open(&format!("file://{}", page.display()));

    assert_eq!(browser.value("document.querySelector('#asks').hidden"), false);
    let first = "document.querySelector('#stacks details')";
    let shown = browser.value(&format!("{first}.textContent"));
    let shown = shown.as_str().expect("text").to_owned();
    assert!(shown.starts_with("find ") && shown.contains("asking.c:"), "{shown}");
    assert!(shown.contains("such as /nowhere/<b>0"), "{shown}");
    let cell = |function: &str| {
        let cells = "[...document.querySelectorAll('#flame .cell')]";
        format!("{cells}.find((cell) => cell.title.startsWith('{function} '))")
    };
    let title = browser.value(&format!("{}.title.split('\\n')[1]", cell("search")));
    assert_eq!(title, "30 look-ups, 30 not there");
    let width = |browser: &mut Browser, function: &str| {
        browser.value(&format!("Math.round({}.offsetWidth)", cell(function))).as_u64()
    };
    let (wide, narrow) = (width(&mut browser, "find"), width(&mut browser, "check"));
    assert!(wide > narrow && narrow.is_some(), "{wide:?} {narrow:?}");
    // A click shows the function and its callers in the whole width, and nothing that is beside it.
    browser.value(&format!("{}.click()", cell("check")));
    assert_eq!(browser.value(&format!("{} === undefined", cell("search"))), true);
    assert_eq!(width(&mut browser, "check"), width(&mut browser, "main"));
    assert!(width(&mut browser, "check") > narrow);
}

#[test]
fn a_page_without_stacks_has_no_place_for_them() {
    let place = Place::new();
    let page = place.path().join("page.html");
    trace(&["--html", page.to_str().expect("text")], &mut Command::new("true"));
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains(r#""stacks":[]"#) && page.contains(r#"<section id="asks" hidden>"#));
}

#[test]
fn on_a_phone_no_name_is_cut_and_rows_are_few() {
    if !has("chromium") {
        return;
    }
    let place = Place::new();
    let page = place.path().join("page.html");
    let script = "i=0; while [ $i -lt 600 ]; do [ -e /none/of/these/folders/is/there/a-long-name-$i ]; \
                  i=$((i+1)); done";
    let options = ["--html", page.to_str().expect("text")];
    trace(&options, Command::new("sh").args(["-c", script]));
    let mut browser = Browser::start(place.path());
    let size = json!({ "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true });
    browser.ask("Emulation.setDeviceMetricsOverride", size);
    browser.open(&format!("file://{}", page.display()));
    let number = |browser: &mut Browser, of: &str| browser.value(of).as_u64().expect("a number");
    assert!(number(&mut browser, "document.documentElement.scrollWidth") <= 390);
    // 57,000 pixels with a row for each name, in which a name had 60 of them.
    assert!(number(&mut browser, "document.documentElement.scrollHeight") < 8_000);
    let width = "Math.round(document.querySelector('#names td').getBoundingClientRect().width)";
    assert!(number(&mut browser, width) > 300);
    assert_eq!(browser.value(&format!("{NAMES}.length")), 30);
}

//! The page of a recording, in Chromium: a click goes into the treemap, words filter the table.

use std::process::Command;

use serde_json::{Value, json};

use super::{Place, has, report, trace};
use crate::browser::Browser;
use crate::thruway;

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

//! The page of a recording, in Chromium: a click goes into the treemap, words filter the table.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{Place, has, report, trace};
use crate::thruway;

/// A headless browser, driven over pipes: messages of JSON, each with a NUL behind it.
struct Browser {
    process: Child,
    commands: File,
    messages: BufReader<File>,
    session: Value,
    sent: u64,
    /// What the page asked the network for.
    requested: Vec<String>,
}

impl Browser {
    /// Starts it with its files in `folder`, on an empty page.
    fn start(folder: &Path) -> Self {
        let [commands, messages] = ["commands", "messages"].map(|name| folder.join(name));
        let made = Command::new("mkfifo").args([&commands, &messages]).status();
        assert!(made.expect("mkfifo starts").success());
        let process = Command::new("sh")
            .args([
                "-c",
                "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
                          --no-first-run --window-size=1200,900 --user-data-dir=\"$1/profile\" \
                          --remote-debugging-pipe about:blank 3<\"$2\" 4>\"$3\"",
                "sh",
            ])
            .args([folder, &commands, &messages])
            .env("HOME", folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let commands = OpenOptions::new().write(true).open(commands).expect("it is read");
        let messages = BufReader::new(File::open(messages).expect("it is written"));
        let (session, requested) = (Value::Null, Vec::new());
        let mut browser = Self { process, commands, messages, session, sent: 0, requested };
        let targets = browser.ask("Target.getTargets", json!({}));
        let pages = targets["targetInfos"].as_array().expect("a list");
        let page = pages.iter().find(|target| target["type"] == "page").expect("a page");
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        browser.session = browser.ask("Target.attachToTarget", attach)["sessionId"].clone();
        browser.ask("Network.enable", json!({}));
        browser
    }

    /// Sends a command and waits for its answer.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut command = json!({ "id": self.sent, "method": method, "params": parameters });
        if !self.session.is_null() {
            command["sessionId"] = self.session.clone();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).expect("it is read");
        loop {
            let message = self.message();
            if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.messages.read_until(0, &mut bytes).expect("it is written");
        let message: Value = serde_json::from_slice(bytes.strip_suffix(b"\0").unwrap_or(&bytes))
            .expect("the browser lives, and a message is JSON");
        if message["method"] == "Network.requestWillBeSent" {
            let url = message["params"]["request"]["url"].as_str().expect("text");
            self.requested.push(url.to_owned());
        }
        message
    }

    /// Opens a file and waits until its scripts have run.
    fn open(&mut self, file: &Path) {
        self.ask("Page.enable", json!({}));
        self.ask("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while self.message()["method"] != "Page.loadEventFired" {}
    }

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let answer = self.ask("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Clicks with the mouse on the top left corner of an element, where its name is.
    fn click(&mut self, selector: &str) {
        let place = self.value(&format!(
            "(() => {{ const element = document.querySelector('{selector}'); element.scrollIntoView(); \
             const box = element.getBoundingClientRect(); return [box.left + 6, box.top + 6]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let (x, y) = (&place[0], &place[1]);
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.ask("Input.dispatchMouseEvent", event);
        }
    }

    fn type_text(&mut self, text: &str) {
        self.ask("Input.insertText", json!({ "text": text }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const NAMES: &str =
    "[...document.querySelectorAll('#names tbody tr')].map((row) => row.cells[0].textContent)";

/// The page of a fresh recording of a shell that searches a command in two folders of its own.
fn page(place: &Place) -> (std::path::PathBuf, Vec<Value>) {
    place.file("tools/one/other", "");
    place.file("tools/two/other", "");
    let (recording, page) = (place.path().join("recording"), place.path().join("page.html"));
    let root = place.path().display();
    let path = format!("{root}/tools/one:{root}/tools/two:/usr/bin:/bin");
    let script = "for i in 1 2 3 4 5 6; do env true; no-such-tool 2>/dev/null; done";
    let options = ["-o", recording.to_str().expect("text")];
    trace(&options, Command::new("sh").args(["-c", script]).env("PATH", path));
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
    browser.open(&page);

    let shown = browser.value("document.querySelector('#sums b').textContent.replaceAll(',', '')");
    assert_eq!(shown.as_str(), Some(report[0]["lookups"].to_string().as_str()));
    let all = browser.value(&format!("{NAMES}.length")).as_u64().expect("a count");
    assert!(browser.value("document.querySelectorAll('#advice li').length").as_u64() > Some(1));
    assert!(browser.value("document.querySelectorAll('#time rect').length").as_u64() > Some(1));

    // Into the treemap, until it shows one of our folders.
    for _ in 0..10 {
        if browser
            .value("document.querySelector('#filter').value")
            .as_str()
            .is_some_and(|path| path.ends_with("/tools/one/"))
        {
            break;
        }
        let cell = browser.value(
            "(() => { const cells = [...document.querySelectorAll('#map .cell')]; \
             const cell = cells.findLast((cell) => /tools\\/one$/.test(cell.title.split('\\n')[0])) ?? \
               cells.findLast((cell) => /tools$/.test(cell.title.split('\\n')[0])) ?? cells[0]; \
             return cell.dataset.folder; })()",
        );
        browser.click(&format!(".cell[data-folder=\"{}\"]", cell.as_str().expect("a folder")));
    }
    let names = browser.value(NAMES);
    let names: Vec<_> = names.as_array().expect("rows").iter().filter_map(Value::as_str).collect();
    assert!(!names.is_empty() && (names.len() as u64) < all);
    assert!(names.iter().all(|name| name.contains("/tools/one/")), "{names:?}");

    // The table is filtered by what is typed.
    browser.click("#crumbs button");
    assert_eq!(browser.value(&format!("{NAMES}.length")), all);
    browser.click("#filter");
    browser.type_text("no-such-tool");
    let names = browser.value(NAMES);
    let names = names.as_array().expect("rows");
    assert_eq!(names.len(), 4, "a folder of PATH each: {names:?}");
    let file = format!("file://{}", page.display());
    assert_eq!(browser.requested, [file], "nothing else is asked for");
}

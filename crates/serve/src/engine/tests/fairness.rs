//! The turns of connections, of bodies and of clients.

use super::*;
use crate::{FairBy, WorkerTable};

#[test]
fn all_clients_get_the_same_number_of_turns() {
    let mut rig = Rig::new(hello);
    let mut clients: Vec<_> = (0..5).map(|_| rig.connect()).collect();
    rig.run_until(|rig| rig.engine.connection_count() == 5);
    // The first client sends a hundred requests at once, the others send one request each.
    clients[0].write_all(&GET.repeat(100)).unwrap();
    clients[1..].iter_mut().for_each(|client| client.write_all(GET).unwrap());
    rig.run_until_waiting(5);
    for _ in 0..5 {
        assert!(rig.engine.turn(&mut rig.handler));
    }
    for client in &mut clients {
        let length = client.read(&mut [0; 4096]).unwrap();
        assert!(length < 200, "one response and not more: {length} bytes");
    }
}

/// Responds with a file of 32 quanta; on the path `/short` with a single word.
fn long(request: &Request<'_>, exchange: &mut Exchange<'_>, _tickets: &mut Vec<Ticket>) {
    if request.path() == b"/short" {
        return exchange.respond_text(200, "short");
    }
    let file = tempfile::tempfile().unwrap();
    let length = 32 * QUANTUM_BYTES as u64;
    file.set_len(length).unwrap();
    let (head, plan) = head_of(Some(length));
    let payload = Payload::File { file: file.into(), offset: 0, length };
    exchange.respond(Response { head: &head, plan, payload });
}

#[test]
fn a_long_body_leaves_in_one_quantum_while_another_waits_for_something_short() {
    for (other, is_alone) in [(&b""[..], true), (b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n", false)]
    {
        let mut rig = Rig::new(long);
        let (mut first, mut second) = (rig.connect(), rig.connect());
        rig.run_until(|rig| rig.engine.connection_count() == 2);
        first.write_all(GET).unwrap();
        rig.run_until_waiting(1);
        second.write_all(other).unwrap();
        rig.run_until_waiting(if is_alone { 1 } else { 2 });
        assert!(rig.engine.turn(&mut rig.handler));
        let (bytes_max, mut bytes) = (QUANTUM_BYTES + 1000, 0);
        let bytes_min = if is_alone { bytes_max + 1 } else { QUANTUM_BYTES };
        while bytes < bytes_min {
            bytes += first.read(&mut vec![0; 1 << 20]).unwrap();
        }
        let got_more = bytes + received(&mut first) > bytes_max;
        assert_eq!(got_more, is_alone, "{bytes} bytes in the first turn");
    }
}

thread_local! {
    /// The names of the served clients, from the field that `fair_by` selects, in the order of their turns.
    static SERVED: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

fn note_client(request: &Request<'_>, exchange: &mut Exchange<'_>, _: &mut Vec<Ticket>) {
    let client = request.fields().find(|(name, _)| *name == b"X-Client");
    let name = client.map_or('-', |(_, value)| char::from(value[0]));
    SERVED.with_borrow_mut(|served| served.push(name));
    exchange.respond_text(200, "served");
}

fn fair_rig() -> Rig {
    SERVED.with_borrow_mut(String::clear);
    let fair_by = FairBy::Header("x-client".into());
    Rig::with(note_client, Settings { fair_by, ..Settings::default() })
}

/// Sends one request for each name in `names`, each on its own connection, with `text` after the fields. Returns the
/// connections and the order of the turns.
fn serve_clients(rig: &mut Rig, names: &str, text: &str) -> (Vec<TcpStream>, String) {
    let mut clients: Vec<_> = names.chars().map(|_| rig.connect()).collect();
    for (client, name) in clients.iter_mut().zip(names.chars()) {
        let named = if name == '-' { String::new() } else { format!("X-Client: {name}\r\n") };
        client
            .write_all(format!("POST / HTTP/1.1\r\nHost: a\r\n{named}{text}").as_bytes())
            .unwrap();
    }
    rig.run_until(|_| SERVED.with_borrow(String::len) == names.len());
    (clients, SERVED.take())
}

#[test]
fn clients_behind_a_proxy_take_turns_whatever_their_connections() {
    let mut rig = fair_rig();
    let (_clients, order) = serve_clients(&mut rig, "gggggott", "\r\n");
    assert_eq!(order, "gotgtggg");
}

#[test]
fn requests_with_bodies_take_turns_too() {
    let mut rig = fair_rig();
    let body = format!("Content-Length: 100\r\n\r\n{}", "x".repeat(100));
    let (_clients, order) = serve_clients(&mut rig, "gggo", &body);
    assert_eq!(order, "gogg");
}

#[test]
fn a_request_without_a_client_is_its_connections_own() {
    let mut rig = fair_rig();
    let (_clients, order) = serve_clients(&mut rig, "gg---", "\r\n");
    assert_eq!(order, "g---g");
}

#[test]
fn requests_of_clients_that_leave_hold_nothing_up() {
    let mut rig = fair_rig();
    for round in 0..20 {
        let mut clients: Vec<_> = (0..30).map(|_| rig.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let name = ["a", "b", "c"][number % 3];
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Client: {name}\r\n\r\n");
            client.write_all(text.as_bytes()).unwrap();
        }
        rig.run_until(|rig| rig.engine.connection_count() >= 10);
        let mut number = 0;
        clients.retain(|_| {
            number += 1;
            (number + round) % 4 > 0
        });
        for client in &mut clients {
            assert!(rig.receive(client, 1).starts_with("HTTP/1.1 200"));
        }
        drop(clients);
        rig.run_until(|rig| rig.engine.connection_count() == 0);
    }
}

/// Returns the workers of one group, each with a listener.
fn workers() -> [Rig; 2] {
    SERVED.with_borrow_mut(String::clear);
    let group = WorkerTable::new(2).unwrap();
    [0, 1].map(|index| {
        let mut rig = Rig::new(note_client);
        let listener = rig.engine.acceptor.listeners()[0].try_clone().unwrap();
        let worker = Some(group.handle(index));
        rig.engine = Engine::new(Settings::default(), vec![listener], worker).unwrap();
        rig
    })
}

/// Connects a client whose request waits for its turn in `rig`.
fn asks(rig: &mut Rig, name: char) -> TcpStream {
    let mut client = rig.connect();
    write!(client, "GET / HTTP/1.1\r\nHost: a\r\nX-Client: {name}\r\n\r\n").unwrap();
    rig.run_until_waiting(1);
    client
}

/// Sends the only connection of `giver` to the second worker.
fn send_the_oldest(giver: &mut Rig) {
    let Engine { store, migration, .. } = &mut giver.engine;
    let id = store.slab.ids().next().unwrap();
    let worker = &migration.as_ref().unwrap().worker;
    worker.send_open(store.slab.get(id).unwrap(), false, 1, 8).unwrap();
    store.close(id);
}

#[test]
fn a_request_on_its_way_from_another_worker_goes_before_a_younger_one() {
    let clock = StoppedClock::new();
    let [mut giver, mut taker] = workers();
    let _older = asks(&mut giver, 'o');
    clock.advance_ms(1);
    // Hides the request, so that the taker does not ask for it.
    giver.engine.migration.as_ref().unwrap().worker.note_waiting(0, None);
    let _younger = asks(&mut taker, 'y');
    assert!(!taker.engine.ask_for_older(), "nothing is on its way");
    send_the_oldest(&mut giver);
    assert!(taker.engine.ask_for_older() && taker.engine.awaits_offer());
    taker.engine.poll(&mut Events::new(), Some(0));
    assert!(!taker.engine.awaits_offer(), "it has come");
    while taker.engine.turn(&mut taker.handler) {}
    SERVED.with_borrow(|served| assert_eq!(served, "oy"));
}

#[test]
fn an_announced_message_is_awaited_until_it_should_have_arrived() {
    let clock = StoppedClock::new();
    let [mut giver, mut taker] = workers();
    let _older = asks(&mut giver, 'o');
    clock.advance_ms(2);
    giver.engine.migration.as_ref().unwrap().publish(&giver.engine.store);
    taker.engine.store.clock.now_us = monotonic_us();
    let migration = taker.engine.migration.as_mut().unwrap();
    assert!(migration.ask(&taker.engine.store));
    // Between taking the question and sending the message, only the announcement says that a message is coming.
    assert_eq!(giver.engine.migration.as_ref().unwrap().worker.take_asker(), Some(1));
    assert!(taker.engine.awaits_offer());
    // The message does not arrive. A worker that waits for events forgets the announcement as well.
    assert_eq!(taker.engine.begin_wait(None), Some(1), "it looks again");
    clock.advance_ms(2);
    assert!(!taker.engine.awaits_offer());
    let untaken =
        |rig: &Rig| rig.engine.migration.as_ref().unwrap().worker.row().untaken().since_us();
    assert!(untaken(&taker).is_some());
    taker.engine.take(&mut Events::new());
    assert_eq!(untaken(&taker), None);
    assert_eq!(giver.engine.migration.as_ref().unwrap().worker.take_asker(), None);
}

#[test]
fn a_worker_that_has_read_no_row_yet_awaits_what_is_announced() {
    let _clock = StoppedClock::new();
    let [giver, mut taker] = workers();
    giver.engine.migration.as_ref().unwrap().worker.refuse(1);
    assert!(taker.engine.awaits_offer());
    assert_eq!(taker.engine.begin_wait(None), Some(1), "it may not come");
}

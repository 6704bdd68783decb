# frozen_string_literal: true

require_relative "../serving"
require_relative "../websocketing"
require "thruway/application/builder"
require "tmpdir"
require "zlib"

# WebSockets and streams of events by `rack.upgrade`, as in iodine.
class SocketsTest < Minitest::Test
  include Serving

  # A handler that records events and echoes messages.
  class Echo
    attr_reader :told, :clients

    def initialize
      @told = Queue.new
      @clients = Queue.new
    end

    def on_open(client)
      @told << [:open, client.env["PATH_INFO"]]
      @clients << client
    end

    def on_message(client, data)
      raise "not that" if data == "raise"

      sink if data == "sink"
      exit if data == "exit"

      @told << [:message, data.encoding, data.bytesize]
      client.write(data)
    end

    def sink = sink + 1

    def on_close(client) = @told << [:close, client.close_code]
    def on_shutdown(_client) = @told << [:shutdown]
    def on_drained(_client) = @told << [:drained]
  end

  # A server waits for the close frames of its clients.
  def teardown
    @clients&.each { |client| client.io.close }
    super
  end

  def serve_sockets(handler = Echo.new, headers: {}, **options)
    serve(**options) do |env|
      @seen = env["rack.upgrade?"]
      env["rack.upgrade"] = handler
      [200, headers, []]
    end
    handler
  end

  def open(...) = WebSocketing.new(connect.io, ...)

  def pop(queue) = Timeout.timeout(PATIENCE_SECONDS) { queue.pop }

  def test_messages_go_both_ways_and_the_handler_is_told_of_each_step
    headers = { "Sec-WebSocket-Protocol" => "chat", "Set-Cookie" => "a=b\nc=d" }
    handler = serve_sockets(headers: headers)
    socket = open("/room")
    assert_equal [101, :websocket], [socket.status, @seen]
    assert_equal [WebSocketing::ACCEPT, "chat"],
                 socket.fields.values_at("sec-websocket-accept", "sec-websocket-protocol")
    assert_equal [:open, "/room"], pop(handler.told)
    assert_equal "grüß", socket.send("grüß").message
    assert_equal [:message, Encoding::UTF_8, 6], pop(handler.told)
    assert_equal "\xff\0".b, socket.send("\xff\0", WebSocketing::BINARY).message
    assert_equal [:message, Encoding::BINARY, 2], pop(handler.told)
    long = "x" * 200_000
    assert_equal long, socket.send(long).message
    assert_equal [0x80 | WebSocketing::PONG, "beat"], socket.send("beat", WebSocketing::PING).frame
    assert_equal 4321, socket.close(4321, "bye").close_code
    assert_nil socket.frame
    pop(handler.told)
    assert_equal [:close, 4321], pop(handler.told)
    eventually { @servings.last.first.engine.connections.zero? }
  end

  def test_any_thread_writes_and_closes_and_a_client_knows_how_it_is
    handler = serve_sockets
    socket = open
    client = pop(handler.clients)
    assert_equal [true, 0, :websocket], [client.open?, client.pending, client.protocol]
    Thread.new { client << "from elsewhere" }.join
    assert_equal "from elsewhere", socket.message
    assert_raises(ArgumentError) { client.write("\xff") }
    client.close(4000, "enough")
    assert_equal 4000, socket.close_code
    socket.close(4000)
    pop(handler.told)
    assert_equal [:close, 4000], pop(handler.told)
    assert_equal [false, -1, false], [client.open?, client.pending, client.write("late")]
  end

  def test_a_client_that_vanishes_is_closed_abnormally
    handler = serve_sockets
    open.io.close
    pop(handler.told)
    assert_equal [:close, 1006], pop(handler.told)
  end

  def test_a_broken_rule_ends_the_socket_with_its_code
    handler = serve_sockets(socket_message_bytes_max: 1000)
    { "\xff" => 1007, ("x" * 1001) => 1009 }.each do |bytes, code|
      socket = open.send(bytes)
      assert_equal code, socket.close_code
      assert_nil socket.frame
      socket.io.close
      pop(handler.told)
      assert_equal [:close, code], pop(handler.told)
    end
  end

  def test_what_a_handler_raises_closes_its_client_and_no_other
    serve_sockets
    other = open
    said = stderr_of do
      socket = open.send("raise")
      assert_equal 1011, socket.close_code
      eventually { $stderr.string.include?("not that") }
    end
    assert_includes said, "in GET /"
    assert_equal "still here", other.send("still here").message
  end

  def test_what_a_handler_raises_ends_no_thread_of_the_server
    serve_sockets
    said = stderr_of do
      %w[sink exit].each { |message| assert_equal 1011, open.send(message).close_code }
      eventually { $stderr.string.include?("SystemExit") }
    end
    assert_includes said, "stack level too deep (SystemStackError)"
    refute_includes said, "a thread ended"
  end

  # An event of a client waits until the one before is handled, and others do not.
  def test_one_client_has_one_event_at_a_time_and_others_have_theirs_meanwhile
    gate = Queue.new
    order = Queue.new
    handler = Object.new
    handler.define_singleton_method(:on_message) do |client, data|
      order << "begin #{data}"
      gate.pop if data == "wait"
      order << "end #{data}"
      client.write(data)
    end
    serve_sockets(handler, threads: 3)
    slow = open
    slow.send("wait").send("next")
    assert_equal "begin wait", pop(order)
    quick = open
    assert_equal "quick", quick.send("quick").message
    assert_equal ["begin quick", "end quick"], [pop(order), pop(order)]
    gate << true
    assert_equal %w[wait next], [slow.message, slow.message]
    assert_equal ["end wait", "begin next", "end next"], Array.new(3) { pop(order) }
  end

  def test_sockets_need_no_thread_each
    handler = serve_sockets(threads: 2)
    sockets = Array.new(50) { open }
    before = Thread.list.size
    echoes = sockets.each_with_index.map { |socket, at| socket.send(at.to_s).message }
    assert_equal((0...50).map(&:to_s), echoes)
    assert_operator Thread.list.size, :<=, before
    assert_equal 50, handler.clients.size
  end

  def test_a_broadcast_reaches_all_and_counts_them
    handler = serve_sockets
    sockets = Array.new(5) { open }
    clients = Array.new(5) { pop(handler.clients) }
    sockets.first.io.close
    eventually { clients.one? { |client| !client.open? } }
    count = Thruway::Client.broadcast(clients, "all")
    assert_equal [4, %w[all] * 4], [count, sockets.drop(1).map(&:message)]
  end

  def test_a_broadcast_is_of_texts_that_are_utf_8_and_reaches_streams_of_events
    handler = serve_sockets
    socket = open
    stream = connect.send("GET /feed HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n").io
    clients = Array.new(2) { pop(handler.clients) }
    latin = "gr\xfc\xdf".dup.force_encoding("ISO-8859-1")
    assert_equal 2, Thruway::Client.broadcast(clients, latin)
    assert_equal "grüß", socket.message
    Timeout.timeout(PATIENCE_SECONDS) { stream.gets("\r\n\r\n") }
    event = "data: grüß\n\n".b
    assert_equal event, Timeout.timeout(PATIENCE_SECONDS) { stream.read(event.bytesize) }
    assert_raises(ArgumentError) { Thruway::Client.broadcast(clients, "\xff") }
  end

  def test_messages_are_compressed_where_both_want_that
    serve_sockets(socket_compression: true)
    offer = "Sec-WebSocket-Extensions: foo, permessage-deflate; client_max_window_bits\r\n"
    socket = open("/", offer)
    assert_equal Thruway::Sockets::DEFLATE, socket.fields["sec-websocket-extensions"]
    text = "to and fro " * 100
    deflate = Zlib::Deflate.new(9, -15)
    packed = deflate.deflate(text, Zlib::SYNC_FLUSH).delete_suffix("\x00\x00\xff\xff".b)
    first, payload = socket.send(packed, first: 0xc0).frame
    inflated = Zlib::Inflate.new(-15).inflate(payload + "\x00\x00\xff\xff".b)
    assert_equal [0xc1, text, true], [first, inflated, payload.bytesize < 100]
    %w[server_max_window_bits=9 client_max_window_bits=16].each do |parameter|
      other = "Sec-WebSocket-Extensions: permessage-deflate; #{parameter}\r\n"
      assert_nil open("/", other).fields["sec-websocket-extensions"]
    end
    largest = "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=15\r\n"
    assert_equal "#{Thruway::Sockets::DEFLATE}; server_max_window_bits=15",
                 open("/", largest).fields["sec-websocket-extensions"]
    assert_nil open.fields["sec-websocket-extensions"]
  end

  def test_compression_is_off_unless_it_is_asked_for
    serve_sockets
    offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
    assert_nil open("/", offer).fields["sec-websocket-extensions"]
  end

  def test_pages_of_other_hosts_may_not_open_a_socket
    serve_sockets
    assert_equal [101, 101], statuses("http://test.example", "https://TEST.example:443")
    refused = statuses("http://other.example", "null", "http://test.example:81")
    assert_equal [403, 403, 403], refused
    serve_sockets(socket_origins: ["https://shop.example", /\.shop\.example\z/])
    got = statuses("https://shop.example", "https://a.shop.example", "http://test.example")
    assert_equal [101, 101, 403], got
    serve_sockets(socket_origins: :any)
    assert_equal [101], statuses("http://other.example")
  end

  # Rails' executor ends when the body of the response is closed.
  def test_the_body_of_an_application_is_closed_when_a_page_is_refused
    closed = Queue.new
    body = Object.new
    body.define_singleton_method(:each) { |&_block| nil }
    body.define_singleton_method(:close) { closed << true }
    serve do |env|
      env["rack.upgrade"] = Echo.new
      [200, {}, body]
    end
    assert_equal [403, 101], statuses("http://other.example", "http://test.example")
    assert_equal [true, true], Array.new(2) { pop(closed) }
    assert_empty closed
  end

  def statuses(*origins)
    origins.map { |origin| open("/", "Origin: #{origin}\r\n").status }
  end

  def test_a_list_of_an_upgrade_may_be_in_several_fields
    serve_sockets
    io = connect.io
    io.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: Upgrade\r\n" \
             "Upgrade: h2c\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
             "Sec-WebSocket-Key: #{WebSocketing::KEY}\r\n\r\n")
    assert_match(/ 101 /, Timeout.timeout(PATIENCE_SECONDS) { io.gets })
    io.close
  end

  def test_an_application_may_refuse_and_other_requests_are_not_upgraded
    serve do |env|
      env["rack.upgrade"] = Echo.new
      [env["PATH_INFO"] == "/no" ? 401 : 200, {}, [env["rack.upgrade?"].inspect]]
    end
    assert_equal 401, open("/no").status
    assert_equal "nil", get.body
    # Another version, no key, another method.
    ["Sec-WebSocket-Version: 8", "Sec-WebSocket-Version: 13"].each do |fields|
      lines = "Upgrade: websocket\r\nConnection: upgrade\r\n#{fields}\r\n"
      assert_equal "nil", get("/", lines).body
    end
  end

  def test_a_silent_client_is_pinged_and_then_cut_off
    handler = serve_sockets(socket_ping_seconds: 0.2)
    count = 0
    eventually do
      count += 1
      answers_one_ping?
    end
    told = Array.new(2 * count) { pop(handler.told) }
    assert_equal({ [:open, "/"] => count, [:close, 1006] => count }, told.tally)
  end

  # Answers one ping and not the next. Returns false if the answer was late, as on a busy machine:
  # the server then disconnects the client before the next ping.
  def answers_one_ping?
    socket = open
    assert_equal [0x89, ""], socket.frame
    socket.send("", WebSocketing::PONG)
    ping = socket.frame or return false
    assert_equal [0x89, ""], ping
    assert_nil socket.frame
    true
  rescue Errno::EPIPE, Errno::ECONNRESET
    false
  end

  def test_on_drained_follows_a_wait_and_a_client_that_takes_nothing_is_cut_off
    handler = serve_sockets(response_memory_bytes_max: 8 << 20)
    socket = open
    client = pop(handler.clients)
    pop(handler.told)
    client.write("x" * (6 << 20))
    assert_operator client.pending, :>, 0
    assert_equal 6 << 20, socket.message.bytesize
    assert_equal [:drained], pop(handler.told)
    said = stderr_of do
      # More than sockets hold, and then more than is kept.
      writes = Array.new(30) { client.write("x" * (6 << 20)) }
      refute writes.last
      assert_equal [:close, 1006], pop(handler.told)
      eventually { $stderr.string.include?("continue a client's socket") }
    end
    assert_includes said, "bytes wait"
  end

  def test_a_server_that_stops_tells_its_handlers_and_clients
    handler = serve_sockets
    server = @servings.last.first
    sockets = Array.new(3) { open }
    3.times { pop(handler.told) }
    server.stop(10)
    codes = sockets.map { |socket| socket.close_code.tap { |code| socket.close(code) } }
    assert_equal [1001] * 3, codes
    told = Array.new(6) { pop(handler.told) }.tally
    assert_equal({ [:shutdown] => 3, [:close, 1001] => 3 }, told)
    assert @servings.last[1].join(PATIENCE_SECONDS), "it ends"
  end

  def test_events_go_to_a_page_until_it_leaves
    handler = serve_sockets(headers: { "x-own" => "1" })
    io = connect.send("GET /feed HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n").io
    client = pop(handler.clients)
    assert_equal %i[sse sse], [@seen, client.protocol]
    client.write("two\nlines", event: "news", id: 7)
    client << "plain"
    client.write("", event: "empty")
    head = Timeout.timeout(PATIENCE_SECONDS) { io.gets("\r\n\r\n") }
    lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream", "x-own: 1"]
    assert_empty lines - head.lines(chomp: true)
    expected = "event: news\nid: 7\ndata: two\ndata: lines\n\ndata: plain\n\n" \
               "event: empty\ndata: \n\n"
    assert_equal expected, Timeout.timeout(PATIENCE_SECONDS) { io.read(expected.bytesize) }
    assert_raises(ArgumentError) { client.write("x", id: "1\n2") }
    pop(handler.told)
    io.close
    assert_equal [:close, 1006], pop(handler.told)
  end

  def test_a_stream_of_events_that_is_closed_ends_the_response
    handler = serve_sockets(socket_ping_seconds: 0.2)
    io = connect.send("GET /feed HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n").io
    client = pop(handler.clients)
    Timeout.timeout(PATIENCE_SECONDS) { io.gets("\r\n\r\n") }
    comment = Timeout.timeout(PATIENCE_SECONDS) { io.read(3) }
    assert_equal ":\n\n", comment
    client.close
    assert_match(/\A(:\n\n)*\z/, Timeout.timeout(PATIENCE_SECONDS) { io.read })
    pop(handler.told)
    assert_equal [:close, 1000], pop(handler.told)
  end

  def test_the_example_of_the_documentation_works
    page = File.expand_path("../../../docs/howto/websockets.md", __dir__)
    example = File.read(page)[/```ruby\n(# config\.ru.*?)```/m, 1]
    Dir.mktmpdir do |folder|
      File.write("#{folder}/config.ru", example)
      serve(Thruway::Builder.load("#{folder}/config.ru"))
    end
    assert_equal "this is a WebSocket\n", get.body
    socket = open("/lounge")
    assert_equal ["welcome to /lounge", "you said: hello"],
                 [socket.message, socket.send("hello").message]
    said = stderr_of do
      socket.close(4000)
      eventually { $stderr.string.include?("left") }
    end
    assert_equal "left with 4000\n", said
  end
end

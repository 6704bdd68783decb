# frozen_string_literal: true

require_relative "../installed"
require_relative "../serving"
require_relative "../websocketing"

require "json"
require "logger"

unless Installed.gem?("actioncable")
  class CableTest < Minitest::Test
    def test_cable = skip("actioncable is not installed for this Ruby")
  end
  return
end

require "thruway/cable"

# ActionCable on the server's WebSockets, with an adapter of Rails.
class CableTest < Minitest::Test
  include Serving

  class Connection < ActionCable::Connection::Base
    identified_by :name

    def connect
      self.name = request.params["name"] || reject_unauthorized_connection
    end

    def disconnect
      CableTest.events << [:disconnect, name]
    end
  end

  class Room < ActionCable::Channel::Base
    def subscribed
      return reject if params["room"] == "closed"

      stream_from("room #{params["room"]}")
    end

    def speak(data)
      CableTest.events << [:thread, Thread.current.name]
      ActionCable.server.broadcast("room #{params["room"]}", { said: data["text"], by: name })
    end

    def unsubscribed
      CableTest.events << [:unsubscribed, name]
    end
  end

  # It sees each message, so that it shares none.
  class Loud < ActionCable::Channel::Base
    def subscribed = stream_from("room a")

    private

    def transmit(data, via: nil) = super({ "loud" => data["said"].upcase }, via: via)
  end

  # Has a stream twice, and leaves another before that has begun.
  class Twice < ActionCable::Channel::Base
    def subscribed
      2.times { stream_from("room a") }
      stream_from("room b")
      stop_stream_from("room b")
    end
  end

  class << self
    def events = @events ||= Queue.new
  end

  def setup
    CableTest.events.clear
    config = ActionCable.server.config
    config.cable = { "adapter" => "async" }
    config.connection_class = -> { Connection }
    config.logger = Logger.new(nil)
    config.allowed_request_origins = ["http://shop.example"]
    serve(ActionCable.server, threads: 3)
  end

  def teardown
    @clients&.each { |client| client.io.close }
    super
    ActionCable.server.restart
  end

  def open(name, fields = "")
    origin = "Origin: http://shop.example\r\n"
    offer = "Sec-WebSocket-Protocol: actioncable-v1-json, actioncable-unsupported\r\n"
    socket = WebSocketing.new(connect.io, "/cable?name=#{name}", "#{offer}#{origin}#{fields}")
    assert_equal [101, "actioncable-v1-json"],
                 [socket.status, socket.fields["sec-websocket-protocol"]]
    assert_equal({ "type" => "welcome" }, read(socket))
    socket
  end

  # Returns the next message that is not a heartbeat.
  def read(socket)
    Timeout.timeout(PATIENCE_SECONDS) do
      message = JSON.parse(socket.message) until message && message["type"] != "ping"
      message
    end
  end

  def command(socket, command, channel: "CableTest::Room", room: "a", **data)
    identifier = JSON.generate({ channel: channel, room: room })
    data = { data: JSON.generate(data) } if data.any?
    socket.send(JSON.generate({ command: command, identifier: identifier, **data }))
    identifier
  end

  def subscribe(socket, **options)
    identifier = command(socket, "subscribe", **options)
    assert_equal({ "identifier" => identifier, "type" => "confirm_subscription" }, read(socket))
    identifier
  end

  def pop = Timeout.timeout(PATIENCE_SECONDS) { CableTest.events.pop }

  def test_what_one_says_reaches_all_in_the_room_and_no_other
    ann, ben, cid = %w[ann ben cid].map { |name| open(name) }
    identifier = [ann, ben].map { |socket| subscribe(socket) }.last
    subscribe(cid, room: "b")
    command(ann, "message", action: "speak", text: "grüß <b>")
    expected = { "identifier" => identifier, "message" => { "said" => "grüß <b>", "by" => "ann" } }
    assert_equal [expected, expected], [read(ann), read(ben)]
    assert_match(/\Athruway-\d\z/, pop.last, "a thread of the server handles it")
    command(cid, "message", room: "b", action: "speak", text: "alone")
    assert_equal "alone", read(cid)["message"]["said"], "what is said elsewhere did not come"
  end

  def test_a_client_that_leaves_gets_nothing_more_and_the_channel_is_told
    ann, ben = %w[ann ben].map { |name| open(name) }
    [ann, ben].each { |socket| subscribe(socket) }
    command(ben, "unsubscribe")
    assert_equal [:unsubscribed, "ben"], pop
    ann.io.close
    assert_equal [[:disconnect, "ann"], [:unsubscribed, "ann"]], [pop, pop].sort
    eventually { ActionCable.server.connections.size == 1 }
    # The room is empty, and opens again.
    subscribe(ben)
    command(ben, "message", action: "speak", text: "again")
    assert_equal "again", read(ben)["message"]["said"]
  end

  def test_a_channel_that_transmits_by_itself_sees_each_message
    ann, ben = %w[ann ben].map { |name| open(name) }
    subscribe(ann, channel: "CableTest::Loud")
    subscribe(ben)
    command(ben, "message", action: "speak", text: "hello")
    assert_equal({ "loud" => "HELLO" }, read(ann)["message"])
  end

  def test_a_stream_that_is_asked_for_twice_or_left_at_once_is_confirmed
    ann, ben = %w[ann ben].map { |name| open(name) }
    identifier = subscribe(ann, channel: "CableTest::Twice")
    subscribe(ben)
    2.times do |time|
      command(ben, "message", action: "speak", text: time.to_s)
      expected = { "said" => time.to_s, "by" => "ben" }
      assert_equal [identifier, expected], read(ann).values_at("identifier", "message")
    end
  end

  def test_refusals_are_those_of_rails
    socket = WebSocketing.new(connect.io, "/cable", "Origin: http://shop.example\r\n")
    assert_equal "unauthorized", read(socket)["reason"]
    assert_equal 1000, socket.close_code
    other = WebSocketing.new(connect.io, "/cable", "Origin: http://other.example\r\n")
    assert_equal 404, other.status
    ann = open("ann")
    identifier = command(ann, "subscribe", room: "closed")
    assert_equal({ "identifier" => identifier, "type" => "reject_subscription" }, read(ann))
  end

  def test_an_adapter_that_reaches_one_worker_alone_is_told_once_where_there_are_several
    fields = "Origin: http://other.example\r\n"
    said = [0, 2].map do |workers|
      stderr_of do
        serve(ActionCable.server, workers: workers)
        2.times { assert_equal 404, WebSocketing.new(connect.io, "/cable", fields).status }
      end
    end
    told = said.map { |text| text.scan(/adapter "async" reaches the clients of one worker/).size }
    assert_equal [0, 1], told, said.last
  end

  def test_every_client_gets_the_beat
    sockets = %w[ann ben].map { |name| open(name) }
    eventually { ActionCable.server.connections.size == 2 }
    ActionCable.server.send(:beat_all)
    assert_equal %w[ping ping], (sockets.map { |socket| JSON.parse(socket.message)["type"] })
  end

  def test_a_server_that_stops_asks_its_clients_to_come_again
    ann = open("ann")
    server = @servings.last.first
    server.stop(10)
    expected = { "type" => "disconnect", "reason" => "server_restart", "reconnect" => true }
    assert_equal expected, read(ann)
    assert_equal 1001, ann.close_code
    ann.close(1001)
    assert_equal [:disconnect, "ann"], pop
  end
end

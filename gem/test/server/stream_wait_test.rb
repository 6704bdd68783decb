# frozen_string_literal: true

require "rack/body_proxy"

require_relative "../serving"

# Streams of applications that wait: before their response, between its pieces, and in many requests
# at the same time.
class StreamWaitTest < Minitest::Test
  include Serving

  GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

  # The first chunk has come, and so the body goes on: without it the client would wait for ever.
  def assert_streams(client, gate)
    Timeout.timeout(PATIENCE_SECONDS) do
      client.read_head
      assert_equal "3\r\none\r\n", client.io.read(8)
      gate << true
      assert_equal "3\r\ntwo\r\n0\r\n\r\n", client.io.read(13)
    end
  end

  def stream_of(gate)
    Enumerator.new do |to|
      to << "one"
      gate.pop
      to << "two"
    end
  end

  def test_a_stream_begins_at_once_after_the_application_waited
    gate = Queue.new
    before = Queue.new
    serve(threads: 3) do
      before.pop
      [200, {}, stream_of(gate)]
    end
    # The repetitions suffice for the lead to change before each call.
    10.times do
      client = connect.send(GET)
      sleep 0.01
      before << true
      assert_streams client, gate
    end
  end

  def test_a_stream_begins_at_once_while_all_other_threads_are_busy
    gate = Queue.new
    held = Queue.new
    serve(threads: 2) do |env|
      next [200, {}, [held.pop]] if env["PATH_INFO"] == "/held"

      [200, {}, stream_of(gate)]
    end
    busy = connect.send(GET.sub("/", "/held"))
    eventually { held.num_waiting == 1 }
    5.times { assert_streams connect.send(GET), gate }
    held << "done"
    assert_equal "done", busy.response.body
  end

  def test_a_stream_begins_at_once_while_the_leader_is_busy
    gate = Queue.new
    before = Queue.new
    held = Queue.new
    serve(threads: 2) do |env|
      next [200, {}, [held.pop]] if env["PATH_INFO"] == "/held"

      before.pop
      [200, {}, stream_of(gate)]
    end
    client = connect.send(GET)
    eventually { before.num_waiting == 1 }
    busy = connect.send(GET.sub("/", "/held"))
    eventually { held.num_waiting == 1 }
    before << true
    assert_streams client, gate
    held << "done"
    assert_equal "done", busy.response.body
  end

  # Sinatra's `stream` and ActionController::Live also make the pieces in another thread.
  def test_pieces_that_another_thread_makes_leave_one_by_one
    pieces = Queue.new
    serve(threads: 3) do
      body = Enumerator.new do |to|
        while (piece = pieces.pop)
          to << piece
        end
      end
      sleep 0.005
      [200, {}, body]
    end
    client = connect.send(GET)
    Timeout.timeout(PATIENCE_SECONDS) do
      %w[one two six].each_with_index do |piece, index|
        pieces << piece
        client.read_head if index.zero?
        assert_equal "3\r\n#{piece}\r\n", client.io.read(8)
      end
      pieces << nil
      assert_equal "0\r\n\r\n", client.io.read(5)
    end
  end

  # Nothing but the first piece can let the body go on, and its thread computes meanwhile.
  def test_a_piece_leaves_before_the_next_one_is_computed
    is_open = false
    serve(threads: 3) do
      body = Enumerator.new do |to|
        to << "one"
        nil until is_open
        to << "two"
      end
      [200, {}, body]
    end
    gate = Object.new
    gate.define_singleton_method(:<<) { |_| is_open = true }
    assert_streams connect.send(GET), gate
  ensure
    is_open = true
  end

  # The wrappers of Rack's middleware around a body. In Rack 2, they hide that the body is an Array.
  def test_an_array_in_wrappers_is_one_write_with_a_length
    wrapped = lambda do |body, times|
      times.zero? ? body : Rack::BodyProxy.new(wrapped.call(body, times - 1)) { nil }
    end
    serve(threads: 3) { [200, {}, wrapped.call(%w[one two], 3)] }
    10.times { assert_equal "6", get["content-length"] }
  end

  # All clients are in the application at once, so most threads do not lead when they respond.
  def test_an_array_in_wrappers_has_its_length_for_any_number_of_clients
    [1, 2, 20].each do |count|
      all_are_in = Thread::Queue.new
      entered = Thread::Queue.new
      serve(threads: count) do
        entered << true
        all_are_in.pop
        [200, {}, Rack::BodyProxy.new(%w[one two]) { nil }]
      end
      clients = Array.new(count) { connect.send(GET) }
      count.times { entered.pop }
      count.times { all_are_in << true }
      lengths = clients.map { |client| client.response["content-length"] }
      assert_equal ["6"] * count, lengths
    end
  end

  # A body that may turn into an Array, and counts the calls of its methods.
  class Convertible
    attr_reader :asked

    def initialize(array)
      @array = array
      @asked = []
    end

    def to_ary
      @asked << :to_ary
      @array
    end

    def each
      @asked << :each
      yield "piece"
    end

    def close
      @asked << :close
    end
  end

  def test_a_body_with_to_ary_is_closed_and_its_each_is_not_called
    body = Convertible.new(%w[one two])
    serve { [200, {}, body] }
    response = get
    assert_equal %w[6 onetwo], [response["content-length"], response.body]
    eventually { body.asked.last == :close }
    assert_equal %i[to_ary close], body.asked
  end

  def test_a_body_whose_to_ary_gives_none_yields_its_pieces
    body = Convertible.new(nil)
    serve { [200, {}, body] }
    response = get
    assert_equal ["chunked", "piece"], [response["transfer-encoding"], response.body]
    eventually { body.asked.last == :close }
    assert_equal %i[to_ary each close], body.asked
  end

  def test_a_body_whose_to_ary_is_no_array_of_strings_is_an_error
    body = Convertible.new([:one])
    serve { [200, {}, body] }
    said = stderr_of { assert_equal 500, get.status }
    assert_includes said, "a body consists of Strings (TypeError)"
    eventually { body.asked.last == :close }
    assert_equal %i[to_ary close], body.asked
  end

  def test_a_short_body_whose_length_is_told_keeps_it
    serve(threads: 3) { [200, { "content-length" => "6" }, %w[one two].each] }
    response = get
    assert_equal %w[6 onetwo], [response["content-length"], response.body]
  end
end

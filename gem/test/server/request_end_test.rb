# frozen_string_literal: true

require_relative "../serving"

# Handles that outlive their request reach neither the next request of the connection nor any other.
class RequestEndTest < Minitest::Test
  include Serving

  GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

  # Serves two pipelined requests of a connection. `first` is called with the stream of the first
  # request and two Queues: one receives an item when the second response has begun, and the other
  # ends that response.
  def serve_two(&first)
    begun = Queue.new
    go = Queue.new
    bodies = [
      ->(stream) { first.call(stream, begun, go) },
      lambda do |stream|
        stream.write("second ")
        begun << true
        go.pop
        stream.write("response")
        stream.close
      end
    ]
    serve(threads: 4) { [200, {}, bodies.shift] }
    connect.send(GET * 2)
  end

  # An argument of `write` whose conversion to a String ends the use of the stream.
  Late = Struct.new(:block) do
    def to_s
      block.call
      "LEAK"
    end
  end

  def test_a_write_that_goes_on_after_the_stream_was_closed_does_not_reach_the_next_response
    error = Queue.new
    client = serve_two do |stream, begun, go|
      Thread.new do
        stream.write("first", Late.new(-> { stream.close || begun.pop }))
      rescue SystemCallError, IOError => e
        error << e
      ensure
        error << nil
        go << true
      end
    end
    assert_equal "first", client.response.body
    assert_equal "second response", client.response.body
    raised = error.pop
    assert_equal [IOError, "closed stream"], [raised.class, raised&.message]
  end

  # The original reproduction, whose threads run in no fixed order, repeated a few times.
  def test_a_stream_that_another_thread_closes_leaks_nothing
    body = lambda do |stream|
      Thread.new do
        stream.write("a" * 3_000_000, "LEAK")
      rescue SystemCallError, IOError
        nil
      end
      Thread.new { stream.close }
    end
    bodies = Queue.new
    serve(threads: 4) { [200, {}, bodies.pop] }
    20.times do
      bodies << body << ["second"]
      client = connect.send(GET * 2)
      client.response
      response = client.response
      assert_equal ["second", "6"], [response.body, response["content-length"]]
    end
  end

  def test_a_handle_of_the_engine_ends_with_its_request
    late = Queue.new
    client = serve_two do |stream, begun, go|
      ticket = stream.instance_variable_get(:@ticket)
      engine = stream.instance_variable_get(:@engine)
      stream.write("first")
      stream.close
      Thread.new do
        begun.pop
        late << engine.write(ticket, "LEAK")
        engine.finish(ticket)
        engine.abort(ticket)
        go << true
      end
    end
    assert_equal "first", client.response.body
    assert_equal "second response", client.response.body
    refute late.pop
  end

  def test_a_body_that_fails_after_its_end_does_not_end_the_next_response
    client = nil
    stderr_of do
      client = serve_two do |stream, begun, go|
        stream.write("first")
        stream.close
        begun.pop
        Thread.new { sleep(0.05) && go << true }
        raise "after the end"
      end
      assert_equal "first", client.response.body
      assert_equal "second response", client.response.body
      eventually { $stderr.string.include?("after the end") }
    end
  end

  def test_an_old_request_cannot_take_the_connection_of_the_next_one
    kept = []
    serve(threads: 2) do |env|
      kept << env["rack.hijack"]
      kept.first.call if kept.size == 2
      [200, {}, ["whole"]]
    end
    client = connect
    assert_equal "whole", client.request.body
    said = stderr_of { assert_equal 500, client.request.status }
    assert_includes said, "the request has no connection that could be hijacked (IOError)"
  end

  def test_another_thread_may_take_the_connection_of_a_request
    serve(threads: 2) do |env|
      Thread.new { env["rack.hijack"].call.tap { |io| io.write("mine") }.close }.join
      [-1, {}, []]
    end
    assert_equal "mine", connect.send(GET).io.read
  end

  def test_a_connection_cannot_be_taken_after_the_response
    taken = Queue.new
    serve(threads: 2) do |env|
      env["rack.after_reply"] << lambda do
        taken << (begin
          env["rack.hijack"].call
        rescue IOError => e
          e.message
        end)
      end
      [200, {}, ["whole"]]
    end
    client = connect
    assert_equal "whole", client.request.body
    assert_equal "the request has no connection that could be hijacked", taken.pop
    assert_equal "whole", client.request.body
  end
end

# frozen_string_literal: true

require_relative "../serving"

class HijackTest < Minitest::Test
  include Serving

  def test_an_application_takes_the_whole_connection
    server = serve do |env|
      io = env["rack.hijack"].call
      io.write("mine: #{io.readpartial(10)}")
      io.close
      [-1, {}, []]
    end
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nmore")
    assert_equal "mine: more", client.io.read
    eventually { server.engine.connections.zero? }
  end

  def test_the_connection_is_in_the_environment_too
    serve do |env|
      env["rack.hijack"].call
      env["rack.hijack_io"].write("found")
      env["rack.hijack_io"].close
    end
    assert_equal "found", connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").io.read
  end

  def test_a_connection_can_be_kept_for_later
    kept = nil
    serve { |env| kept = env["rack.hijack"].call }
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually { kept }
    kept.write("later")
    kept.close
    assert_equal "later", client.io.read
  end

  def test_the_head_is_sent_before_the_connection_is_given_away
    hijack = lambda do |io|
      io.write(io.readpartial(4).upcase)
      io.close
    end
    headers = { "connection" => "upgrade", "upgrade" => "echo", "rack.hijack" => hijack }
    serve { [101, headers, []] }
    upgrade = "Upgrade: echo\r\nConnection: upgrade\r\n"
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n#{upgrade}\r\n")
    status, fields = client.read_head
    assert_equal [101, "upgrade", nil],
                 [status, fields.assoc("connection").last, fields.assoc("rack.hijack")]
    assert_equal "ECHO", client.send("echo").io.read
  end

  # The body that an application returns after a hijack. It counts the calls of `close`.
  class Unsent
    attr_reader :closes

    def each
      raise "it is not sent"
    end

    def close
      @closes = @closes.to_i + 1
    end
  end

  def test_the_body_that_is_not_sent_is_closed_once
    body = Unsent.new
    finished = Queue.new
    serve do |env|
      env["rack.response_finished"] << ->(_env, status, *) { finished << [status, body.closes] }
      env["rack.hijack"].call.close
      [299, {}, body]
    end
    assert_predicate connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), :closed?
    assert_equal [299, 1], finished.pop
  end

  def test_a_hijack_that_fails_closes_the_connection
    body = Unsent.new
    serve { [200, { "rack.hijack" => ->(_io) { raise "not mine" } }, body] }
    said = stderr_of do
      client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      client.read_head
      assert_predicate client, :closed?
      eventually { body.closes == 1 && $stderr.string.include?("not mine") }
    end
    assert_includes said, "in GET /"
  end

  def test_a_connection_is_taken_once
    serve do |env|
      env["rack.hijack"].call.close
      env["rack.hijack"].call
    end
    said = stderr_of do
      assert_predicate connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), :closed?
      eventually { $stderr.string.include?("IOError") }
    end
    assert_includes said, "the request has no connection that could be hijacked (IOError)"
  end
end

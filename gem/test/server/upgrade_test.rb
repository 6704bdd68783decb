# frozen_string_literal: true

require_relative "../serving"

# Streaming bodies on status 101: they get the connection, both ways.
class UpgradeTest < Minitest::Test
  include Serving

  UPGRADE = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n"
  HEADERS = { "upgrade" => "echo", "connection" => "upgrade" }.freeze

  def upgrade(more = "", body)
    serve(threads: 2) { [101, HEADERS, body] }
    client = connect.send(UPGRADE + more)
    status, fields = Timeout.timeout(PATIENCE_SECONDS) { client.read_head }
    assert_equal [101, "upgrade", "echo"],
                 [status, fields.assoc("connection").last, fields.assoc("upgrade").last]
    assert_nil fields.assoc("content-length") || fields.assoc("transfer-encoding")
    client
  end

  def test_a_streaming_body_reads_and_writes_until_it_closes
    body = lambda do |stream|
      while (word = stream.read(4))
        stream.write(word.upcase, "!")
        stream << "?"
        stream.flush
      end
      stream.close
    end
    client = upgrade("over", body)
    assert_equal "OVER!?", client.io.read(6)
    assert_equal "ECHO!?", client.send("echo").io.read(6)
    client.io.close_write
    assert_predicate client, :closed?
  end

  def test_a_streaming_body_may_go_on_in_another_thread
    client = upgrade(lambda { |stream|
      Thread.new do
        stream.write(stream.readpartial(10).reverse)
        stream.close_read
        stream.close
      end
    })
    assert_equal "olleh", client.send("hello").io.read
  end

  def test_a_body_that_fails_closes_the_connection
    said = stderr_of do
      client = upgrade(->(_stream) { raise "no such protocol" })
      assert_predicate client, :closed?
      eventually { $stderr.string.include?("no such protocol") }
    end
    assert_includes said, "in GET /"
  end

  def test_the_server_counts_the_connection_no_more
    closed = Queue.new
    body = lambda do |stream|
      stream.close
      closed << true
    end
    def body.close
      raise "a body that is called may be closed, too"
    end
    server = nil
    stderr_of do
      serve_upgrade = upgrade(body)
      server = @servings.last.first
      closed.pop
      assert_predicate serve_upgrade, :closed?
      eventually { server.engine.connections.zero? }
      # The connection may have ended before the body is closed.
      eventually { $stderr.string.include?("may be closed, too") }
    end
  end
end

# frozen_string_literal: true

require "minitest/autorun"
require "socket"
require "timeout"

require "thruway/configuration/configuration"
require "thruway/server/listeners"
require "thruway/server/server"

# Servers in the test's own process, and clients that show every byte.
module Serving
  # The time after which a test fails, and never a measure.
  PATIENCE_SECONDS = 60

  Response = Struct.new(:status, :headers, :body) do
    def [](name)
      headers.assoc(name)&.last
    end
  end

  # A connection to a server.
  class Client
    attr_reader :io

    def initialize(io)
      @io = io
    end

    def send(text)
      @io.write(text)
      self
    end

    # `fields` are whole lines.
    def request(path = "/", fields = "", method: "GET", body: nil)
      fields += "Content-Length: #{body.bytesize}\r\n" if body
      send("#{method} #{path} HTTP/1.1\r\nHost: test.example:81\r\n#{fields}\r\n#{body}")
      response(head: method == "HEAD")
    end

    def response(head: false)
      status, fields = read_head
      Response.new(status, fields, head || bodiless?(status) ? "" : read_body(fields))
    end

    def read_head
      line = @io.gets("\r\n") or raise EOFError, "the connection ended"
      fields = []
      while (field = @io.gets("\r\n")&.chomp("\r\n")) && !field.empty?
        fields << field.split(": ", 2).then { |name, value| [name.downcase, value] }
      end
      [line[9, 3].to_i, fields]
    end

    def read_body(fields)
      if fields.assoc("transfer-encoding")&.last == "chunked"
        read_chunks
      elsif (length = fields.assoc("content-length"))
        @io.read(length.last.to_i)
      else
        @io.read
      end
    end

    def closed?
      @io.eof?
    rescue Errno::ECONNRESET
      true
    end

    private

    def bodiless?(status)
      status < 200 || [204, 304].include?(status)
    end

    def read_chunks
      body = +""
      while (size = @io.gets("\r\n").to_i(16)).positive?
        body << @io.read(size)
        @io.read(2)
      end
      @io.read(2)
      body
    end
  end

  def teardown
    (@servings || []).each do |server, thread, listeners|
      server.stop(1)
      thread.join(PATIENCE_SECONDS)
      listeners.close
    end
    super
  end

  # The options of the mode in which requests run, unless a test sets them.
  def mode = {}

  # Serves `app` and returns the server. `connect` reaches the last server.
  def serve(app = nil, binds: ["tcp://127.0.0.1:0"], sendfile: [], **options, &block)
    configuration = Thruway::Configuration.new
    options = { threads: 2, environment: "production", **mode }.merge(options)
    options.each { |name, value| configuration.offer(name, value) }
    configuration.sendfile.concat(sendfile)
    listeners = Thruway::Listeners.new(binds)
    server = Thruway::Server.new(app || block, configuration, listeners.descriptors)
    thread = Thread.new { server.run }
    (@servings ||= []) << [server, thread, listeners]
    @address = listeners.addresses.first
    server
  end

  def connect
    io = if @address.start_with?("unix:")
           UNIXSocket.new(@address.delete_prefix("unix://"))
         else
           TCPSocket.new("127.0.0.1", @address[/\d+\z/].to_i)
         end
    (@clients ||= []) << Client.new(io)
    @clients.last
  end

  def get(...)
    connect.request(...)
  end

  # Runs the block and returns its output on stderr.
  def stderr_of
    original = $stderr
    $stderr = StringIO.new
    yield
    $stderr.string
  ensure
    $stderr = original
  end

  # Returns the block's first result that is neither nil nor false.
  def eventually
    result = nil
    Timeout.timeout(PATIENCE_SECONDS) { sleep 0.005 until (result = yield) }
    result
  end
end

# frozen_string_literal: true

require "socket"

# Clients that wait for their responses at the same time, check every byte, and leave at times. The
# crowd is told which workers were killed, and counts the responses that were lost otherwise.
class Crowd
  # The application that the clients know. Its responses begin with the process that makes them.
  APPLICATION = <<~'RUBY'
    class Body
      def initialize(number) = @number = number

      def each
        yield "#{Process.pid} "
        sleep 0.5 + (@number % 16) / 8.0
        yield "#{@number} " * 50
        sleep 0.1 if @number % 3 == 0
        yield "end"
      end
    end

    run(lambda do |env|
      body = Body.new(env["QUERY_STRING"].to_i)
      [200, {}, env["PATH_INFO"] == "/stream" ? body : [body.enum_for.to_a.join]]
    end)
  RUBY

  # How long a client waits for its whole response.
  PATIENCE_SECONDS = 60
  LOOK_SECONDS = 0.05
  FAULTS_SHOWN = 20

  attr_reader :counts, :faults

  # `clients` connections to the port of this machine.
  def initialize(port, clients, seed: 1)
    @port, @random = port, Random.new(seed)
    @counts, @faults, @killed = Hash.new(0), [], {}
    @requests, @looked = 0, now
    @clients = Array.new(clients) { Client.new(self) }
  end

  # Sends requests for this time, and then waits for their responses.
  def run(seconds)
    deadline = now + seconds
    @is_open = true
    @clients.each(&:ask)
    look while now < deadline
    @is_open = false
    look while @clients.any?(&:waits?)
  end

  # Records that the worker is about to be killed: its requests are lost with it.
  def expect_death(worker)
    @killed[worker] = now
  end

  # Whether an incomplete response may be lost: its worker was killed or, if its worker is not
  # known, any worker was killed after `since`.
  def may_lose?(worker, since)
    worker ? @killed.key?(worker) : @killed.each_value.any? { |time| time >= since }
  end

  # The text of a chunked body; nil before its end has arrived, and "" if its framing is wrong.
  def self.unchunk(body)
    text = +""
    loop do
      line, rest = body.split("\r\n", 2)
      return unless rest
      return "" unless line.match?(/\A\h+\z/)

      size = line.to_i(16)
      return unless rest.bytesize >= size + 2
      return "" unless rest.byteslice(size, 2) == "\r\n"
      return rest.bytesize == 2 ? text : "" if size.zero?

      text << rest.byteslice(0, size)
      body = rest.byteslice((size + 2)..)
    end
  end

  def open? = @is_open

  def next_number = @requests += 1

  def chance(one_in) = @random.rand(one_in).zero?

  def rand(...) = @random.rand(...)

  # The time of the last poll but one: events that a client finds now are newer.
  attr_reader :looked

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def connect
    socket = Socket.new(:INET, :STREAM)
    socket.connect_nonblock(Socket.sockaddr_in(@port, "127.0.0.1"), exception: false)
    socket
  end

  def count(kind, fault = nil)
    @counts[kind] += 1
    @faults << "#{kind}: #{fault}" if fault && @faults.size < FAULTS_SHOWN
  end

  def close = @clients.each(&:close)

  private

  def look
    began = now
    by_socket = @clients.select(&:waits?).to_h { |client| [client.socket, client] }
    unsent = by_socket.filter_map { |socket, client| socket if client.unsent? }
    readable, writable = IO.select(by_socket.keys, unsent, nil, LOOK_SECONDS)
    writable&.each { |socket| by_socket[socket].send }
    readable&.each { |socket| by_socket[socket].receive }
    by_socket.each_value(&:look_at_clock)
    @looked = began
  end

  # One client, which has one request at a time.
  class Client
    attr_reader :socket

    def initialize(crowd)
      @crowd = crowd
    end

    def waits? = @waits

    def unsent? = @unsent

    def ask
      @is_kept = !@socket.nil?
      @socket ||= @crowd.connect
      @number, @data, @waits, @unsent = @crowd.next_number, +"", true, true
      @since, @asked = @crowd.looked, @crowd.now
      @leaves = @asked + @crowd.rand(2.0) if @crowd.chance(10)
      path = @crowd.chance(2) ? "/whole" : "/stream"
      @text = "GET #{path}?#{@number} HTTP/1.1\r\nHost: a\r\n\r\n"
      send if @is_kept
    end

    def send
      @unsent = @socket.write_nonblock(@text, exception: false) == :wait_writable
    rescue SystemCallError => e
      lose(e.class)
    end

    def receive
      data = @socket.read_nonblock(1 << 16, exception: false)
      return if data == :wait_readable
      return lose("the end") unless data

      @data << data
      judge
    rescue SystemCallError => e
      lose(e.class)
    end

    def look_at_clock
      return unless @waits

      if @leaves && @crowd.now > @leaves
        finish(:left, ends: true)
      elsif @crowd.now > @asked + PATIENCE_SECONDS
        finish(:late, describe("nothing"), ends: true)
      end
    end

    def close
      @socket&.close
      @socket = nil
    end

    # Counts a response that is complete or wrong.
    def judge
      head, body = @data.split("\r\n\r\n", 2)
      return unless body
      unless head.start_with?("HTTP/1.1 200 ")
        return finish(:wrong, describe("the head"), ends: true)
      end

      length = head[/^content-length: (\d+)/i, 1]
      text = length ? body : Crowd.unchunk(body)
      return unless text && (length.nil? || text.bytesize >= length.to_i)

      is_right = text.match?(/\A\d+ (#{@number} ){50}end\z/)
      ends = !is_right || head.match?(/^connection: close/i) || @crowd.chance(3)
      finish(is_right ? :right : :wrong, is_right ? nil : describe("the body"), ends: ends)
    end

    # Counts a response whose connection has ended early.
    def lose(how)
      worker = @data[/\r\n(\d+) /, 1]&.to_i
      may_lose = @crowd.may_lose?(worker, @since)
      finish(may_lose ? :killed : :lost, may_lose ? nil : describe(how), ends: true)
    end

    private

    def finish(kind, fault = nil, ends:)
      @crowd.count(kind, fault)
      close if ends
      @waits = @leaves = nil
      ask if @crowd.open?
    end

    def describe(how)
      seconds, kind = (@crowd.now - @asked).round(2), @is_kept ? "kept" : "new"
      "#{how} after #{seconds} s, #{kind} connection, request #{@number}: #{@data[0, 200].inspect}"
    end
  end
end

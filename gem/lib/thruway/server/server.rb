# frozen_string_literal: true

require_relative "../engine"
require_relative "../support/hooks"
require_relative "../support/latch"
require_relative "../support/redirection"
require_relative "../support/signals"
require_relative "empty_input"
require_relative "hijack"
require_relative "sockets"
require_relative "stream"

module Thruway
  # One process's server: an engine, the threads that drive it, and everything about a request that
  # is too rare to be done in Rust. The engine calls the methods below `private` by their names.
  class Server
    TEXT = { "content-type" => "text/plain; charset=utf-8" }.freeze

    EARLY_HINTS = "HTTP/1.1 103 Early Hints\r\n"

    # A line that is one field: a token, and a value without control characters.
    FIELD = /\A[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\z/n

    # What may be gems in the application's bundle, which is set up when the application is loaded.
    def self.load_libraries
      require "socket"
      require "stringio"
    end

    attr_reader :engine

    # `listeners` are descriptors of sockets that listen. In a `fleet`, this is number `worker`.
    def initialize(app, settings, listeners, fleet: nil, worker: 0)
      Redirection.fill
      self.class.load_libraries
      @settings = settings
      @threads = {}
      @ended = Thread::Queue.new
      @pid = Process.pid
      @over = Latch.new
      @engine = Engine.create(self, app: app, env: template, hijack: Hijack, listeners: listeners,
                                    threads: settings.threads, sendfile: settings.sendfile,
                                    fleet: fleet, worker: worker, **settings.engine_options)
      @sockets = Sockets.new(@engine, settings) { |error, env| report(error, env) }
    end

    # Serves until it is stopped and the last answers are sent. A thread that something else ends
    # meanwhile is replaced.
    def run
      looks = @settings.load_signal.start { @engine.stats } if @settings.load_report
      @settings.threads.times { |number| start_thread(number) }
      until @threads.empty?
        name, is_whole, error = @ended.pop
        @threads.delete(name)&.join
        replace(name, error) unless is_whole || @is_late
      end
      @over.open
      looks&.kill&.join
    end

    # Accepts nothing more, and lets `run` end within so many seconds, or without a limit.
    # With `closes_for_all` other processes accept nothing from the listeners either. It may be
    # called from a trap, and before `run`.
    def stop(seconds = @settings.drain_seconds, closes_for_all: true)
      Signals.write(Signals.backtraces) if @settings.shutdown_debug == true
      @engine.drain(closes_for_all)
      @stopper ||= Thread.new { end_late_threads(seconds) } if seconds
    end

    # Lets others go on with its connections, and `run` end within so many seconds, or without a
    # limit. It may be called from a trap.
    def retire(seconds)
      @engine.retire
      @stopper ||= Thread.new { end_late_threads(seconds) } if seconds
    end

    # After `run`: ends its threads, so that the process can be forked.
    def close
      @stopper&.join
      @engine.close
    end

    # Fails health checks, and parts with each client after its next answer. It may be called from a
    # trap.
    def announce_end = @engine.announce_end

    # Reads certificates anew, as is also done when their files have changed. It may be called while
    # the server serves, and not from a trap.
    def reload_certificates
      wrong = @engine.reload_certificates
      trouble(wrong) if wrong
    end

    private

    # Starts the thread of that number. How it ends is told, whatever ends it. A thread inherits
    # what its maker holds back, so nothing can reach it before or after its turns.
    def start_thread(name)
      Thread.handle_interrupt(Object => :never) do
        @threads[name] = Thread.new { tell_end_of(name) }
      end
    end

    def tell_end_of(name)
      is_whole = false
      Thread.handle_interrupt(Object => :immediate) { serve_as(name) }
      is_whole = true
    rescue Exception => e # rubocop:disable Lint/RescueException
      # In a fork of this process the thread is the main one, which ends as the application says.
      raise if Process.pid != @pid

      error = e
    ensure
      @ended << [name, is_whole, error]
    end

    def serve_as(name)
      Thread.current.name = "thruway-#{name}"
      Hooks.run(@settings, :before_thread_start)
      @engine.serve(name)
      Hooks.run(@settings, :before_thread_exit)
    end

    def replace(name, error)
      why = error ? "#{error.class}: #{error.message.lines.first&.chomp}" : "it was killed"
      say("a thread ended before its time (#{why}); another takes its place")
      start_thread(name)
    end

    def end_late_threads(seconds)
      return if @over.wait(seconds)

      @is_late = true
      late = @threads.values
      say("#{late.size} threads were still busy after #{seconds} s")
      Signals.write(Signals.backtraces) if @settings.shutdown_debug
      @engine.give_up
      late.each(&:kill)
    end

    # What every request's environment starts as.
    def template
      {
        "rack.version" => [1, 6].freeze, "rack.errors" => $stderr, "rack.input" => NoInput,
        "rack.url_scheme" => @settings.url_scheme || "http", "rack.run_once" => false,
        "rack.multithread" => @settings.threads > 1, "rack.multiprocess" => @settings.workers > 0,
        "rack.hijack?" => true,
        "SCRIPT_NAME" => "", "SERVER_NAME" => "localhost", "SERVER_PORT" => "80",
        "SERVER_PROTOCOL" => "HTTP/1.1", "SERVER_SOFTWARE" => "thruway #{VERSION}",
        "GATEWAY_INTERFACE" => "CGI/1.2", "REMOTE_ADDR" => "127.0.0.1"
      }
    end

    # Gives a request its body, and answers with what is to be closed later.
    def input(env, bytes, file)
      env["rack.input"] = bytes ? StringIO.new(bytes) : file
    end

    # The certificate of the client, as Puma names it.
    def certificate(env, der)
      require "openssl"
      env["puma.peercert"] = OpenSSL::X509::Certificate.new(der)
    end

    # Tells of an exception, and gives the answer that stands for it.
    def failed(error, env)
      report(error, env)
      handler = @settings.lowlevel_error_handler
      return plain_error(error) unless handler

      arguments = [error, env, 500]
      count = handler.arity.negative? ? arguments.size : handler.arity
      handler.call(*arguments.first(count))
    end

    # Tells of what the engine could not do.
    def trouble(text)
      say(text.force_encoding(Encoding::UTF_8))
    end

    # A log that cannot be written costs no request.
    def say(text, more = "")
      # Messages and requests may have any bytes.
      $stderr.write("thruway: ".b << text.b << "\n" << more.b)
    rescue SystemCallError, IOError
      nil
    end

    def plain_error(error)
      shown = @settings.development? ? "#{error.message} (#{error.class})" : "an application error"
      [500, TEXT, ["500 Internal Server Error: #{shown}\n"]]
    end

    def report(error, env)
      request = "  in #{env["REQUEST_METHOD"]} #{env["REQUEST_URI"]}\n" if env
      say(error.full_message(highlight: false).chomp, request)
    rescue EncodingError
      # Its message and its backtrace do not go together.
      say(Hooks.describe(error), request)
    end

    # After the answer is sent: what the application asked to be told, and the body is closed.
    def finished(env, returned, body, error)
      body.close if body.is_a?(IO) && !body.closed?
      env["rack.after_reply"]&.each { |callback| guard(env) { callback.call } }
      status, headers = returned
      env["rack.response_finished"]&.reverse_each do |callback|
        guard(env) { callback.call(env, status, headers, error) }
      end
    end

    # One callback that fails must not keep the others from being called.
    def guard(env)
      yield
    rescue Exception => e # rubocop:disable Lint/RescueException
      # A fork of this process ends as the application says.
      raise if Process.pid != @pid

      report(e, env)
    end

    # The application keeps a connection for other messages than HTTP's.
    def upgrade(ticket, env, headers, handler) = @sockets.upgrade(ticket, env, headers, handler)

    # Something has happened there.
    def socket_event(request, kind, data) = @sockets.event(request, kind, data)

    # A body that writes by itself. Whether it goes on doing so after this returns: then it goes on
    # reading, too, and `input` is closed with the stream.
    def stream(ticket, body, env, input)
      stream = Stream.new(@engine, ticket, env["rack.input"])
      body.call(stream)
      stream.keep(input)
    end

    # The whole connection of a request, before anything was sent (full hijack).
    def hijack(request)
      descriptor, read, env = @engine.take_connection(request)
      raise IOError, "there is no connection to take" unless descriptor

      io = socket(descriptor, read)
      env["rack.hijack_io"] = io
      io
    end

    # Fields that the client gets before the response, if nothing of that was sent.
    def hint(request, headers)
      lines = headers.flat_map do |name, values|
        values = Array(values).flat_map { |value| value.to_s.split("\n") }
        values.map { |value| "#{name}: #{value}".b }
      end
      lines = lines.grep(FIELD)
      @engine.inform(request, "#{EARLY_HINTS}#{lines.join("\r\n")}\r\n\r\n") if lines.any?
    end

    # The connection behind a head that was sent: to `rack.hijack` (partial hijack), or to a
    # streaming body on status 101. It belongs to `callback`, which may keep it and closes it.
    def give_away(callback, descriptor, read)
      io = socket(descriptor, read)
      callback.call(io)
      is_taken = true
    ensure
      io&.close unless is_taken
    end

    def socket(descriptor, read)
      io = Socket.for_fd(descriptor)
      io = (io.local_address.unix? ? UNIXSocket : TCPSocket).for_fd(release(io))
      io.sync = true
      io.ungetbyte(read) unless read.empty?
      io
    end

    def release(io)
      io.autoclose = false
      io.fileno
    end

    # The names and values, in turn, of headers that are no Hash: as they are when they are yielded.
    # Headers may keep the block.
    def fields(headers)
      fields = []
      headers.each do |*pair|
        raise IOError, "the headers' each has returned" if fields.frozen?

        pair = pair.first if pair.size == 1 && pair.first.is_a?(Array)
        raise TypeError, "headers yield pairs of a name and a value" unless pair.size == 2

        pair.each { |part| fields << (part.is_a?(String) ? part.dup : part) }
      end
      fields
    ensure
      fields.freeze
    end

    def bad_field(name)
      say("the header #{name.inspect} holds a control character")
    end

    # What answers for a file that cannot be sent.
    def no_file(path)
      say("#{path} is in none of the folders declared for X-Sendfile, or cannot be read")
      [404, TEXT, ["404 Not Found\n"]]
    end
  end
end

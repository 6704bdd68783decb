# frozen_string_literal: true

require_relative "../support/signals"

module Thruway
  # The object behind `launcher.log_writer`, with the methods of `Puma::LogWriter`. Without streams
  # of its own, the writer uses the server's log.
  class PumaLogWriter
    # The `formatter` of a writer that changes nothing.
    PLAIN = ->(text) { text }

    # A stream that discards all output.
    class NullStream
      def write(*texts) = texts.sum { |text| text.to_s.bytesize }
      def puts(*) = nil
      def flush = self
      def sync = true
      def sync=(value); end
    end

    def self.stdio(env: ENV) = new($stdout, $stderr, env: env)

    def self.strings(env: ENV)
      require "stringio"
      new(StringIO.new, StringIO.new, env: env)
    end

    def self.null(env: ENV)
      stream = NullStream.new
      new(stream, stream, env: env)
    end

    attr_accessor :formatter, :custom_logger

    def initialize(stdout = nil, stderr = nil, env: ENV)
      @stdout = stdout
      @stderr = stderr
      @formatter = PLAIN
      @is_debugging = env.key?("PUMA_DEBUG")
    end

    def stdout = @stdout || $stdout
    def stderr = @stderr || $stderr
    def debug? = @is_debugging

    def log(text)
      return @custom_logger.write(format(text)) if @custom_logger.respond_to?(:write)

      put(@stdout, "#{format(text)}\n")
    end

    def write(text) = put(@stdout, format(text))

    def debug(text = nil)
      log("% #{block_given? ? yield : text}") if debug?
    end

    # Logs the error and ends the process, as Puma's writer does.
    def error(text)
      put(@stderr, "#{format("ERROR: #{text}")}\n")
      exit 1
    end

    def format(text) = @formatter.call(text)

    def unknown_error(error, request = nil, text = "Unknown error")
      put(@stderr, "#{describe(error, request, text)}\n")
    end

    def connection_error(error, request, text = "HTTP connection error")
      unknown_error(error, request, text)
    end

    def parse_error(error, request)
      unknown_error(error, request, "HTTP parse error, malformed request")
    end

    def ssl_error(error, _socket) = unknown_error(error, nil, "SSL error")

    def debug_error(error, request = nil, text = "")
      unknown_error(error, request, text) if debug?
    end

    private

    def describe(error, request, text)
      path = request.env["PATH_INFO"] if request.respond_to?(:env)
      place = error.backtrace&.first if error.respond_to?(:backtrace)
      line = "#{text}#{" (#{path})" if path}: #{error.inspect}"
      place ? "#{line} (#{place})" : line
    end

    # Errors are ignored, so that a full disk or a closed pipe does not end a thread.
    def put(stream, text)
      return Signals.write("thruway: ".b << text.to_s.chomp.b << "\n") unless stream

      stream.write(text)
      stream.flush unless stream.sync
    rescue SystemCallError, IOError
      nil
    end
  end
end

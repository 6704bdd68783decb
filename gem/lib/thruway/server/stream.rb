# frozen_string_literal: true

module Thruway
  # The stream to which a streaming body (Rack 3) writes. Each write is sent at once, and blocks
  # only while the client has more unread bytes than `response_file_limit` allows. A write raises
  # Errno::EPIPE if the client has gone away, and IOError if any thread has closed the stream.
  class Stream
    def initialize(engine, ticket, input)
      @engine = engine
      @ticket = ticket
      @input = input
      @is_open = true
      @kept = nil
    end

    # Keeps the request's body until the stream is closed. Returns whether the stream is open.
    def keep(input)
      @kept = input
      @is_open
    end

    def write(*strings)
      check_open
      strings.sum { |string| write_one(string.to_s) }
    end

    def <<(string)
      write(string)
      self
    end

    def flush
      self
    end

    def read(...)
      @input.read(...)
    end

    # Ends the response. With an error, aborts the connection, so that the client notices.
    def close(error = nil)
      return unless @is_open

      @is_open = false
      error ? @engine.abort(@ticket) : @engine.finish(@ticket)
      @kept.close if @kept.is_a?(IO)
      nil
    end

    alias close_write close

    def close_read
      nil
    end

    def closed?
      !@is_open
    end

    private

    # The check comes before and after each write, since another thread may close the stream.
    def write_one(string)
      check_open
      unless @engine.write(@ticket, string)
        check_open
        raise Errno::EPIPE
      end

      string.bytesize
    end

    def check_open
      raise IOError, "closed stream" unless @is_open
    end
  end
end

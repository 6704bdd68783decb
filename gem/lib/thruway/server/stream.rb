# frozen_string_literal: true

module Thruway
  # What a streaming body (Rack 3) writes to. Each write leaves at once. It waits only while more is
  # unread than `response_file_limit` allows. When the client has gone away, a write raises
  # Errno::EPIPE; when the stream was closed, by whatever thread, an IOError. It never reaches
  # another request than its own.
  class Stream
    def initialize(engine, ticket, input)
      @engine = engine
      @ticket = ticket
      @input = input
      @is_open = true
      @kept = nil
    end

    # Closes a request's body when the stream is closed; false if it is closed already.
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

    # Ends the answer; with an error, ends the connection instead, so that the client knows.
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

    # Another thread may close the stream before each String, and while one waits.
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

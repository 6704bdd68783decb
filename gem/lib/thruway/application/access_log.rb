# frozen_string_literal: true

require_relative "../support/json"

module Thruway
  # Logs a line for each request when its response has been sent (`log_requests`).
  class AccessLog
    # `format` is nil for lines in Puma's format, or `:json`.
    def initialize(app, format: nil, formatter: nil, out: $stdout)
      @app = app
      @is_json = format == :json
      @formatter = formatter
      @out = out
    end

    def call(env)
      began = now
      env["rack.response_finished"] << lambda do |_, status, headers, error|
        seconds, sent = now - began, [status, headers]
        write(@is_json ? json(env, sent, error, seconds) : plain(env, sent, seconds))
      end
      @app.call(env)
    end

    private

    def write(line)
      line = @formatter.call(line) if @formatter
      # One call, so that the lines of several processes do not mix.
      @out.write("#{line}\n")
    end

    # The common log format, followed by the duration in seconds.
    def plain(env, (status, headers), seconds)
      time = Time.now.strftime("%d/%b/%Y:%H:%M:%S %z")
      request = "#{env["REQUEST_METHOD"]} #{escape(env["REQUEST_URI"])} #{env["SERVER_PROTOCOL"]}"
      format("%s - %s [%s] \"%s\" %d %s %.4f", escape(client(env)),
             escape(env["REMOTE_USER"] || "-"), time, request, status.to_i,
             length(headers) || "-", seconds)
    end

    def json(env, (status, headers), error, seconds)
      query = env["QUERY_STRING"].to_s
      Json.generate({
        time: Time.now.utc.strftime("%FT%T.%3NZ"), method: env["REQUEST_METHOD"],
        path: utf8(env["PATH_INFO"]), query: (utf8(query) unless query.empty?),
        status: status.to_i, bytes: length(headers)&.to_i, ms: (seconds * 1000).round(3),
        client: utf8(client(env)), agent: utf8(env["HTTP_USER_AGENT"]),
        request_id: utf8(env["action_dispatch.request_id"] || env["HTTP_X_REQUEST_ID"]),
        traceparent: utf8(env["HTTP_TRACEPARENT"]), error: error && error.class.name,
        pid: Process.pid
      }.compact)
    end

    def client(env)
      env["HTTP_X_FORWARDED_FOR"] || env["REMOTE_ADDR"] || "-"
    end

    def length(headers)
      return unless headers.respond_to?(:each)

      found = nil
      headers.each { |name, value| found = value if name.to_s.casecmp?("content-length") }
      found
    end

    # Escapes all bytes by which a client could begin a line of its own or end a quoted field.
    def escape(text)
      text.to_s.b.gsub(/[^[:graph:]]|"/n) { |char| format("\\x%02x", char.ord) }
    end

    def utf8(text)
      text && text.dup.force_encoding(Encoding::UTF_8).scrub("?")
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end

# frozen_string_literal: true

require_relative "access_log"

module Thruway
  # What a configuration may put around an application. Without such words the application is called
  # as it is.
  module Wrapping
    module_function

    def around(app, configuration)
      app = cache_assets(app, configuration.immutable_assets) if configuration.immutable_assets
      app = compress(app, configuration.compress) if configuration.compress
      app = log(app, configuration) if configuration.log_requests
      app = limit(app, configuration.methods) if configuration.methods
      app = name_client(app, configuration.remote_address) if configuration.remote_address
      app = hint(app) if configuration.early_hints
      app = report(app, configuration.load_signal) if configuration.load_report
      app = isolate(app) if configuration.fiber_per_request
      app
    end

    # A line for each request, as Puma's `log_requests` has it.
    def log(app, configuration)
      format = configuration.log_requests
      AccessLog.new(app, format: (format if format.is_a?(Symbol)),
                         formatter: configuration.log_formatter)
    end

    # Long texts get shorter; `:all` means also those for one user.
    def compress(app, which)
      require_relative "compression"
      Compression.new(app, all: which == :all)
    end

    # Assets with a digest in their names are kept for ever.
    def cache_assets(app, folder)
      require_relative "immutable_assets"
      ImmutableAssets.new(app, folder)
    end

    # Other methods get 501, as from Puma.
    def limit(app, methods)
      text = { "content-type" => "text/plain; charset=utf-8" }.freeze
      lambda do |env|
        next app.call(env) if methods.include?(env["REQUEST_METHOD"])

        [501, text.dup, ["501 Not Implemented: the method is not supported\n"]]
      end
    end

    # `source` is the address itself, or in an Array the key of the field that holds it: its first
    # word counts.
    def name_client(app, source)
      key = source.first if source.is_a?(Array)
      lambda do |env|
        address = key ? env[key]&.split(/[\s,]/)&.first : source
        env["REMOTE_ADDR"] = address if address
        app.call(env)
      end
    end

    # `rack.early_hints`, as Rails calls it.
    def hint(app)
      lambda do |env|
        hijack = env["rack.hijack"]
        env["rack.early_hints"] = ->(headers) { hijack.hint(headers) }
        app.call(env)
      end
    end

    # How busy the server is, in a field of each response.
    def report(app, signal)
      lambda do |env|
        status, headers, body = app.call(env)
        headers = headers.dup if headers.frozen?
        headers[LoadSignal::FIELD] = signal.report
        [status, headers, body]
      end
    end

    # Fiber-local variables do not outlive their request.
    def isolate(app)
      ->(env) { Fiber.new { app.call(env) }.resume }
    end
  end
end

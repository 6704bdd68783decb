# frozen_string_literal: true

require_relative "access_log"

module Thruway
  # The middleware that directives of the configuration put around an application. Without such
  # directives, the application is called directly.
  module Middleware
    module_function

    def around(app, configuration)
      app = cache_assets(app, configuration.immutable_assets) if configuration.immutable_assets
      app = compress(app, configuration.compress) if configuration.compress
      app = log(app, configuration) if configuration.log_requests
      app = limit(app, configuration.methods) if configuration.methods
      app = name_client(app, configuration.remote_address) if configuration.remote_address
      app = hint(app) if configuration.early_hints
      app = report(app, configuration.load_signal) if configuration.load_report
      app = isolate(app) if configuration.fiber_per_request && configuration.fibers.zero?
      app
    end

    # Logs each request, like Puma's `log_requests`.
    def log(app, configuration)
      format = configuration.log_requests
      AccessLog.new(app, format: (format if format.is_a?(Symbol)),
                         formatter: configuration.log_formatter)
    end

    # Compresses responses; with `:all`, also those that are for one user.
    def compress(app, which)
      require_relative "compression"
      Compression.new(app, all: which == :all)
    end

    # Lets clients cache assets forever, if the name of the asset contains a digest.
    def cache_assets(app, folder)
      require_relative "immutable_assets"
      ImmutableAssets.new(app, folder)
    end

    # Responds to other methods with 501, as Puma does.
    def limit(app, methods)
      text = { "content-type" => "text/plain; charset=utf-8" }.freeze
      lambda do |env|
        next app.call(env) if methods.include?(env["REQUEST_METHOD"])

        [501, text.dup, ["501 Not Implemented: the method is not supported\n"]]
      end
    end

    # Sets the client's address: `source` is the address, or an Array with the key of a header
    # field, whose first word is the address.
    def name_client(app, source)
      key = source.first if source.is_a?(Array)
      lambda do |env|
        address = key ? env[key]&.split(/[\s,]/)&.first : source
        env["REMOTE_ADDR"] = address if address
        app.call(env)
      end
    end

    # Sets `rack.early_hints`, which Rails calls.
    def hint(app)
      lambda do |env|
        hijack = env["rack.hijack"]
        env["rack.early_hints"] = ->(headers) { hijack.hint(headers) }
        app.call(env)
      end
    end

    # Reports the server's load in a field of each response.
    def report(app, signal)
      lambda do |env|
        status, headers, body = app.call(env)
        headers = headers.dup if headers.frozen?
        headers[LoadSignal::FIELD] = signal.report
        [status, headers, body]
      end
    end

    # Calls the application in a fresh fiber, so that fiber-local variables do not outlive a
    # request.
    def isolate(app)
      ->(env) { Fiber.new { app.call(env) }.resume }
    end
  end
end

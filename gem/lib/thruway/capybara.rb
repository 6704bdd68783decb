# frozen_string_literal: true

require "capybara"
require_relative "configuration/configuration"
require_relative "server/listeners"
require_relative "server/server"
require_relative "support/failure"
require_relative "version"

module Thruway
  # The server of system tests, for `Capybara.server = :thruway`. Unlike Rack's handler, the server
  # runs beside the tests: it traps no signals, reads no configuration file and sets no process
  # title.
  module CapybaraServer
    # Options of Capybara's other servers, which users may have set.
    OPTIONS = %i[Host Port Threads Silent Verbose workers daemon environment].freeze

    # The default of Capybara's Puma: as many threads as a browser's connections to a host are busy.
    THREADS = "0:4"

    module_function

    # Serves until the thread or the process ends.
    def run(app, port, host, **options)
      check(options)
      host = options.fetch(:Host, host)
      listeners = Listeners.new([uri(host, options.fetch(:Port, port))])
      announce(listeners) unless options[:Silent]
      server = Server.new(around(app, options), configure(options), listeners.descriptors)
      server.run
    ensure
      # A time limit would start a thread, and an ending process cannot start threads.
      server&.stop(nil)
      listeners&.close
    end

    def check(options)
      unknown = options.keys - OPTIONS
      raise ArgumentError, "unknown option for Capybara.server: #{unknown.first}:" if unknown.any?
      return if options.fetch(:workers, 0).to_i.zero? && !options[:daemon]

      raise ArgumentError, "a server of tests runs in their process: workers must be 0, and " \
                           "daemon false"
    end

    def configure(options)
      least, most = options.fetch(:Threads, THREADS).to_s.split(":").values_at(0, -1)
      configuration = Configuration.new
      { environment: options.fetch(:environment, "test"), workers: 0, threads: Integer(most, 10),
        threads_min: Integer(least, 10) }.each { |name, value| configuration.offer(name, value) }
      configuration.check
      configuration
    end

    # Wraps the application. `Verbose` logs each request. `Silent` logs no exceptions, because
    # Capybara raises them in the test.
    def around(app, options)
      app = silence(app) if options[:Silent]
      return app unless options[:Verbose]

      require_relative "application/access_log"
      AccessLog.new(app, format: nil, formatter: nil)
    end

    def silence(app)
      lambda do |env|
        app.call(env)
      rescue StandardError
        [500, { "content-type" => "text/plain" }, ["500 Internal Server Error\n"]]
      end
    end

    # Returns the URI to listen at. A host may be `ssl://HOST?cert=FILE&key=FILE`.
    def uri(host, port)
      host = host.to_s
      return host.sub(%r{\Assl://[^/?]+}) { |place| "#{place}:#{port}" } if
        host.start_with?("ssl://")

      host = "[#{host}]" if host.include?(":") && !host.start_with?("[")
      "tcp://#{host}:#{port}"
    end

    def announce(listeners)
      puts "Capybara starting Thruway...", "* Version #{VERSION}",
           "* Listening on #{listeners.addresses.join(", ")}"
    end
  end
end

Capybara.register_server(:thruway) do |app, port, host, **options|
  Thruway::CapybaraServer.run(app, port, host, **options)
end

# frozen_string_literal: true

require "etc"

require_relative "failure"

module Thruway
  # What a server is told, by options, a file and defaults, in the order of their rank.
  class Configuration
    HOOKS = %i[before_fork before_worker_boot before_worker_shutdown before_worker_fork
               after_worker_fork after_booted].freeze

    # What holds where nothing else is said. Times are Puma's or nginx's.
    DEFAULTS = {
      workers: 0, threads: 5, port: 9292, rackup: "config.ru", preload: true,
      drain_seconds: 30, worker_shutdown_seconds: 30, worker_boot_seconds: 60,
      first_byte_seconds: 30, head_seconds: 30, body_seconds: 60, keep_alive_seconds: 75,
      write_seconds: 60, request_seconds: 0, body_bytes_max: 1 << 30,
      # What a client has not taken: of a response that is written piece by piece, and of all.
      response_memory_bytes_max: 4 << 20, worker_memory_bytes_max: 64 << 20,
      # What of a response goes to a file, before whatever writes it waits for the client.
      response_file_bytes_max: 1 << 30,
      # What a client has to take each second, on average over `write_seconds`.
      write_bytes_per_second_min: 256
    }.freeze

    # What a machine can be asked for in earnest: more is a slip of the finger.
    LIMITS = { workers: 0..1024, threads: 1..1024 }.freeze

    attr_reader :options, :hooks, :binds, :sendfile

    def initialize
      @options = {}
      @hooks = HOOKS.to_h { |name| [name, []] }
      @binds = []
      @sendfile = []
    end

    DEFAULTS.each_key { |name| define_method(name) { @options.fetch(name, DEFAULTS[name]) } }

    # Refuses what cannot be meant.
    def check
      LIMITS.each do |name, limits|
        count = public_send(name)
        next if limits.cover?(count)

        raise Failure, "cannot start #{count} #{name}: it must be #{limits.min} to #{limits.max}"
      end
    end

    def lowlevel_error_handler
      @options[:lowlevel_error_handler]
    end

    def environment
      @options[:environment] || ENV["RAILS_ENV"] || ENV["RACK_ENV"] || "development"
    end

    def development?
      environment == "development"
    end

    def pidfile
      @options[:pidfile]
    end

    # Takes what is said here unless it was said before.
    def offer(name, value)
      @options[name] = value unless @options.key?(name)
    end

    # Where to listen: what was said, or a port on the loopback in development and everywhere else.
    def addresses
      return @binds unless @binds.empty?

      ["tcp://#{host}:#{port}"]
    end

    def host
      @options[:host] || (development? ? "127.0.0.1" : "0.0.0.0")
    end

    # For the engine, in its units.
    def engine_options
      {
        first_byte_ms: ms(first_byte_seconds), head_ms: ms(head_seconds), body_ms: ms(body_seconds),
        keep_alive_ms: ms(keep_alive_seconds), write_ms: ms(write_seconds),
        request_ms: ms(request_seconds), body_bytes_max: body_bytes_max,
        response_memory_bytes_max: response_memory_bytes_max,
        worker_memory_bytes_max: worker_memory_bytes_max,
        response_file_bytes_max: response_file_bytes_max,
        write_bytes_per_second_min: write_bytes_per_second_min
      }
    end

    def run_hooks(name, *arguments)
      @hooks.fetch(name).each { |hook| hook.call(*arguments) }
    end

    private

    def ms(seconds)
      (seconds * 1000).to_i
    end
  end
end

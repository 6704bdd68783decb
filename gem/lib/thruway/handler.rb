# frozen_string_literal: true

require_relative "configuration/configuration_file"
require_relative "launch/launcher"
require_relative "support/shell_words"

module Thruway
  # The handler of `rackup -s thruway` and `rails server -u thruway`. The handler reads the same
  # configuration files as the command `thruway serve`.
  module Handler
    extend self

    # Options of Rack, and the settings that they change.
    NUMBERS = { Threads: :threads, Workers: :workers }.freeze
    SWITCHES = { early_hints: :early_hints, Verbose: :log_requests }.freeze

    # Serves `app` until a signal ends it.
    def run(app, **options)
      command = options[:restart_cmd]
      restart = HotRestart.of_this_process(command && ShellWords.split(command))
      configuration = configure(app, options)
      launcher = Launcher.new(configuration, name: options[:name] || "the application",
                                             restart: restart,
                                             reread: -> { configure(app, options) })
      yield launcher if block_given?
      launcher.run
    rescue Failure => e
      exit e.report
    end

    def valid_options
      {
        "Host=HOST" => "The host to listen on (default: localhost in development)",
        "Port=PORT" => "The port to listen on (default: 9292)",
        "Threads=N" => "The number of threads in each process (default: 5)",
        "Workers=N" => "The number of worker processes (default: 0, this process serves)",
        "Verbose" => "Log each request"
      }
    end

    # Merges the settings: the user's options take precedence over the file, and the file over the
    # defaults of Rails. Rails lists the options that the user has set. With Rack, all come from the
    # user.
    def configure(app, options)
      configuration = Configuration.new
      options = options.transform_keys(&:to_sym)
      supplied = options.delete(:user_supplied_options)&.map(&:to_sym) || options.keys
      given, defaults = options.slice(*supplied), options.except(*supplied)
      configuration.options.update(app: app, preload: true)
      take(configuration, given)
      listen(configuration, defaults.merge(given)) if given[:Host] || given[:Port]
      configuration.offer(:host, defaults[:Host]) if plain?(defaults[:Host])
      ConfigurationFile.take(configuration, Array(options[:config_files]).first)
      take(configuration, defaults)
      listen(configuration, defaults) if configuration.binds.empty?
      configuration
    end

    private

    def take(configuration, options)
      environment = options[:environment]
      configuration.offer(:environment, environment) if environment
      NUMBERS.each do |from, to|
        value = options[from] or next
        configuration.offer(to, Integer(value.to_s.split(":").last))
      end
      SWITCHES.each { |from, to| configuration.offer(to, options[from]) if options[from] }
    end

    # Adds the address to listen on. A host that is a path means a unix socket, as in Puma.
    def listen(configuration, options)
      host, port = options.values_at(:Host, :Port)
      return configuration.binds << uri_of(host, port) if host && !plain?(host)

      configuration.offer(:host, host) if host
      configuration.offer(:port, Integer(port || Configuration::DEFAULTS[:port]))
    end

    def uri_of(host, port)
      return "unix://#{host}" unless host.start_with?("ssl://")

      port ||= Configuration::DEFAULTS[:port]
      host.sub(%r{\Assl://(?:[^/?:\[]+|\[[^\]]*\])(?=[/?]|\z)}) { |place| "#{place}:#{port}" }
    end

    def plain?(host) = host && !host.start_with?(".", "/", "@", "ssl://")
  end
end

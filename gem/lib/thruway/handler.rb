# frozen_string_literal: true

require_relative "configuration_file"
require_relative "launcher"
require_relative "shell_words"

module Thruway
  # What `rackup -s thruway` and `rails server -u thruway` call.
  module Handler
    module_function

    # Serves `app` until a signal ends it.
    def run(app, **options)
      configuration = configure(app, options)
      restart = HotRestart.of_this_process(options[:restart_cmd]&.then { |words|
                                             ShellWords.split(words)
                                           })
      launcher = Launcher.new(configuration, name: options[:name] || "the application",
                                             restart: restart)
      yield launcher if block_given?
      launcher.run
    rescue Failure => e
      exit e.report
    end

    def valid_options
      {
        "Host=HOST" => "Where to listen (default: localhost in development)",
        "Port=PORT" => "The port to listen on (default: 9292)",
        "Threads=N" => "How many threads serve (default: 5)",
        "Workers=N" => "How many processes serve (default: 0, this one)"
      }
    end

    def configure(app, options)
      configuration = Configuration.new
      options = options.transform_keys(&:to_sym)
      configuration.offer(:app, app)
      configuration.offer(:preload, true)
      { environment: :environment, Port: :port, Threads: :threads, Workers: :workers }
        .each { |from, to| take(configuration, options, from, to) }
      bind_host(configuration, options[:Host])
      configuration
    end

    def take(configuration, options, from, to)
      value = options[from] or return
      value = Integer(value.to_s.split(":").last) unless from == :environment
      configuration.offer(to, value)
    end

    # A path is a unix socket, as it is for Puma.
    def bind_host(configuration, host)
      case host
      when nil then nil
      when %r{\A[./]} then configuration.binds << "unix://#{host}"
      else configuration.offer(:host, host)
      end
    end
  end
end

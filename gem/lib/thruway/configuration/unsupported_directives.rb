# frozen_string_literal: true

require_relative "../support/failure"

module Thruway
  # Puma's directives for features that this server lacks. A directive is ignored with a warning
  # only where ignoring is harmless. If access, encryption or data are at stake, the server does not
  # start.
  module UnsupportedDirectives
    # The directives that are ignored, and the server's behaviour instead.
    IGNORED = {
      allow_underscore_headers: "fields with _ in their names are dropped, as in nginx",
      custom_logger: "the server logs to stderr",
      debug: "errors are always logged",
      enable_keep_alives: "connections are always kept alive, and take turns",
      extra_runtime_dependencies: "only the gems of the bundle are loaded",
      idle_timeout: "an idle server keeps running",
      io_selector_backend: "the server always uses epoll",
      max_fast_inline: "connections are always kept alive, and take turns",
      max_keep_alive: "connections are always kept alive, and take turns",
      out_of_band: "the block is never called; use rack.response_finished",
      prune_bundler: "the server runs in the bundle",
      queue_requests: "requests are always read before a thread handles them",
      wait_for_less_busy_worker: "connections always go to the least busy worker",
      worker_culling_strategy: "the number of workers does not shrink by itself"
    }.freeze

    # Directives that have no effect and need no warning.
    SILENT = %i[silence_fork_callback_warning silence_single_worker_warning].freeze

    # The values that request this server's usual behaviour.
    SATISFIED_VALUES = {
      allow_underscore_headers: [false], enable_keep_alives: [true],
      idle_timeout: [nil], prune_bundler: [false], queue_requests: [true]
    }.freeze

    IGNORED.each_key do |word|
      define_method(word) do |*values, &_block|
        raise ArgumentError, "#{word} takes one value" if values.size > 1

        is_satisfied = values.any? && SATISFIED_VALUES.fetch(word, []).include?(values.first)
        ignore(word, IGNORED.fetch(word)) unless is_satisfied
      end
    end

    SILENT.each { |word| define_method(word) { nil } }

    # Lines about ignored directives, in the order of the file.
    def warnings
      @warnings ||= []
    end

    # Has no effect: the server always accepts queued connections before it closes its listeners.
    def drain_on_shutdown(value = true)
      value
    end

    def raise_exception_on_sigterm(value = true)
      ignore(:raise_exception_on_sigterm, "the exit status after TERM is 0") if value
    end

    # Loads a plugin. Two plugins are built in. The others come from gems and are written for Puma.
    def plugin(name)
      case name.to_s
      when "tmp_restart" then @settings[:restart_file] = "tmp/restart.txt"
      # The server notifies systemd without a plugin.
      when "systemd" then nil
      else load_plugin(name.to_s)
      end
    end

    private

    def load_plugin(name)
      require_relative "puma_plugins"
      @configuration.plugins[name] ||= PumaPlugins.create(name)
      @configuration.puma_options = @options.added
      @settings[:counts] = true
      take_words_of_plugins
    rescue Failure
      raise
    rescue ScriptError, StandardError => e
      # The error of Puma's registry has a cause, which names the missing file.
      reason = (e.cause.is_a?(LoadError) ? e.cause : e).message.lines.first&.chomp
      refuse("plugin #{name.to_sym.inspect}", "the plugin cannot be loaded: #{reason}",
             "is its gem in the Gemfile?")
    end

    # Adds the directives that plugins add to `Puma::DSL`, even if Thruway has a directive of the
    # same name.
    def take_words_of_plugins
      replaced = PumaLibrary.replaced_words & ConfigurationFile::OPTION_WORDS
      refuse("plugin", "a plugin replaces Puma's directive #{replaced.first}") if replaced.any?

      words = PumaLibrary.words(self, @options, ConfigurationFile::OPTION_WORDS)
      PumaLibrary.added_words.each do |word|
        define_singleton_method(word) do |*values, **options, &block|
          words.public_send(word, *values, **options, &block)
        end
      end
    end

    def ignore(word, instead)
      line = "#{place}: #{word} is ignored: #{instead}"
      warnings << line unless warnings.include?(line)
    end

    def refuse(word, reason, hint = nil)
      raise Failure.new("#{place}: #{word}: #{reason}", hint: hint)
    end
  end
end

# frozen_string_literal: true

require_relative "../support/failure"

module Thruway
  # Puma's words for what this server does not do. Where leaving one out could hurt (access to
  # the server, what is encrypted, what is lost), the server does not start.
  module OtherWords
    # Words, and what happens instead. A word with false has nothing to leave out.
    PASSED_OVER = {
      allow_underscore_headers: "fields with _ in their names are dropped, as nginx does",
      custom_logger: "the server's own lines go to stderr",
      debug: "the server says what goes wrong without it",
      enable_keep_alives: "connections are kept, and take their turns",
      extra_runtime_dependencies: "the gems of the bundle are loaded, and no others",
      idle_timeout: "the server stays when it is idle",
      io_selector_backend: "it is epoll",
      max_fast_inline: "connections are kept, and take their turns",
      max_io_threads: "all threads are alike",
      max_keep_alive: "connections are kept, and take their turns",
      out_of_band: "it is never called; rack.response_finished is, after each answer",
      prune_bundler: "the server runs in the bundle",
      queue_requests: "a request is read before a thread has it",
      wait_for_less_busy_worker: "a connection goes to the worker with the least to do",
      worker_culling_strategy: "the number of workers stays"
    }.freeze

    # Words that ask for nothing but what holds anyway.
    IDLE = %i[silence_fork_callback_warning silence_single_worker_warning].freeze

    # Answers that ask for what holds anyway.
    IDLE_ANSWERS = {
      allow_underscore_headers: [false], enable_keep_alives: [true],
      idle_timeout: [nil], max_io_threads: [0], prune_bundler: [false], queue_requests: [true]
    }.freeze

    PASSED_OVER.each_key do |word|
      define_method(word) do |*answer, &_block|
        raise ArgumentError, "#{word} takes one value" if answer.size > 1

        asks = answer.empty? || !IDLE_ANSWERS.fetch(word, []).include?(answer.first)
        pass_over(word, PASSED_OVER.fetch(word)) if asks
      end
    end

    IDLE.each { |word| define_method(word) { nil } }

    # Lines about what was passed over, in the order of the file.
    def passed_over
      @passed_over ||= []
    end

    # The backlog is always served before the listeners close.
    def drain_on_shutdown(answer = true)
      answer
    end

    def raise_exception_on_sigterm(answer = true)
      pass_over(:raise_exception_on_sigterm, "after TERM the exit status is 0") if answer
    end

    # Two are built in. Others are classes of gems, which are written against Puma's.
    def plugin(name)
      case name.to_s
      when "tmp_restart" then @said[:restart_file] = "tmp/restart.txt"
      # The server notifies systemd wherever systemd wants that.
      when "systemd" then nil
      else load_plugin(name.to_s)
      end
    end

    private

    def load_plugin(name)
      require_relative "puma_plugins"
      @configuration.plugins[name] ||= PumaPlugins.create(name)
      @configuration.plugin_options = @options
      @said[:counts] = true
    rescue ScriptError, StandardError => e
      reason = e.message.lines.first&.chomp
      refuse("plugin #{name.to_sym.inspect}", "it cannot be loaded: #{reason}",
             "is its gem in the Gemfile?")
    end

    def pass_over(word, instead)
      line = "#{place}: #{word} is passed over: #{instead}"
      passed_over << line unless passed_over.include?(line)
    end

    def refuse(word, reason, hint = nil)
      raise Failure.new("#{place} has #{word}, but #{reason}", hint: hint)
    end
  end
end

# frozen_string_literal: true

# Ends the threads and connections that the children of a template must not share. The user loads
# this file into a module of its own (`load` with a module), because a preloaded command must not
# see a `Thruway` that the command has not required.
module ForkSafety
  # Threads that a child can do without. `Timeout` and Active Record's reaper restart their threads,
  # and the thread of concurrent-ruby only frees the memory of ended threads.
  KNOWN_THREADS = Regexp.union(
    %r{/timeout\.rb:\d+},
    %r{/active_record/connection_adapters/abstract/connection_pool(/reaper)?\.rb:\d+},
    %r{/concurrent/atomic/(ruby_thread_local_var|locals)\.rb:\d+}
  )

  module_function

  # Ends the threads that are known here or to the block. If there is an unknown thread, ends none
  # and returns the unknown thread.
  def end_threads(threads)
    others = threads.reject { |one| KNOWN_THREADS.match?(one.inspect) }
    others = others.reject { |one| yield one } if block_given?
    # A template holds the interpreter lock while it waits for requests, so remaining threads would
    # wake up and wait in vain.
    threads.each(&:kill).each(&:join) if others.empty?
    others.first
  end

  # Closes the database connections of Active Record, which processes must not share.
  def disconnect
    return unless defined?(::ActiveRecord::Base)

    handler = ::ActiveRecord::Base.connection_handler
    if handler.method(:clear_all_connections!).arity.zero?
      handler.clear_all_connections!
    else
      handler.clear_all_connections!(:all)
    end
  end

  # The open sockets: descriptors, each with the target of its link in `/proc/self/fd`.
  def sockets
    numbers = Dir.children("/proc/self/fd")
    links = numbers.filter_map do |number|
      target = File.readlink("/proc/self/fd/#{number}")
      [number.to_i, target] if target.start_with?("socket:")
    rescue SystemCallError
      nil
    end
    links.to_h
  end
end

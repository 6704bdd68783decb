# frozen_string_literal: true

# What must not go on in the children of a process that serves as a template. It is loaded into the
# module of its user (`load` with a module): a preloaded command has no `Thruway` of ours.
module ForkSafety
  # Threads that a child may do without: `Timeout` and Active Record's reaper make theirs again, and
  # concurrent-ruby's only takes back the memory of threads that have ended.
  KNOWN_THREADS = Regexp.union(
    %r{/timeout\.rb:\d+},
    %r{/active_record/connection_adapters/abstract/connection_pool(/reaper)?\.rb:\d+},
    %r{/concurrent/atomic/(ruby_thread_local_var|locals)\.rb:\d+}
  )

  module_function

  # Ends threads that are known, or that the block knows. An unknown thread is the
  # answer; then all stay.
  def end_threads(threads)
    others = threads.reject { |one| KNOWN_THREADS.match?(one.inspect) }
    others = others.reject { |one| yield one } if block_given?
    # They would wake up, and wait for the interpreter in vain.
    threads.each(&:kill).each(&:join) if others.empty?
    others.first
  end

  # Connections are their process's alone.
  def disconnect
    return unless defined?(::ActiveRecord::Base)

    handler = ::ActiveRecord::Base.connection_handler
    if handler.method(:clear_all_connections!).arity.zero?
      handler.clear_all_connections!
    else
      handler.clear_all_connections!(:all)
    end
  end

  # Open sockets: descriptors, and what the system calls them.
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

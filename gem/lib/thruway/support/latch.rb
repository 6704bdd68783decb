# frozen_string_literal: true

module Thruway
  # What threads can wait for, with a limit.
  class Latch
    def initialize
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @is_open = false
    end

    def open
      @mutex.synchronize do
        @is_open = true
        @changed.broadcast
      end
    end

    # Whether it is open within so many seconds.
    def wait(seconds)
      limit = now + seconds
      @mutex.synchronize do
        @changed.wait(@mutex, limit - now) until @is_open || now >= limit
        @is_open
      end
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end

# frozen_string_literal: true

module Thruway
  # A gate that opens once. Threads can wait for the opening with a time limit.
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

    # Waits until the latch is open, at most `seconds`. Returns whether the latch is open.
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

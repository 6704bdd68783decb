# frozen_string_literal: true

module Thruway
  # A process of a cluster. `slot` is its row in the fleet, and `orders` a socket to it. A process
  # of the server before this one has neither here.
  WorkerProcess = Struct.new(:index, :slot, :pid, :started, :ready, :asked, :seen, :status,
                             :requests, :kilobytes, :why, :orders, :is_forked_from_template,
                             keyword_init: true) do
    def ended? = !status.nil?
  end

  # One worker's place: its process, the successor of that, and when it may be filled again.
  class Place
    # A worker that ends so soon after its start is started again later and later.
    SHORT_LIFE_SECONDS = 10
    DELAY_SECONDS_MAX = 16

    attr_reader :index
    attr_accessor :current, :successor, :due

    def initialize(index)
      @index = index
      @failures = 0
      @due = 0
    end

    def ready? = !current.nil? && current.ready

    def processes = [current, successor].compact

    # The successor serves: what it replaces.
    def promote
      old, @current, @successor = @current, @successor, nil
      old
    end

    # Its process has ended. Seconds until it is filled again.
    def vacate(now)
      short = now - @current.started < SHORT_LIFE_SECONDS
      @failures = short ? @failures + 1 : 0
      @current = nil
      delay = @failures < 2 ? 0 : [2**(@failures - 2), DELAY_SECONDS_MAX].min
      @due = now + delay
      delay
    end
  end
end

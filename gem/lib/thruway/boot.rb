# frozen_string_literal: true

require "thruway/thruway"

module Thruway
  # Ruby's boot from a pack: `require` is answered instead of searched for.
  # See docs/reference/verbs/run.md.
  module Boot
    # The folder of the file that requires this one, or the current one.
    def self.caller_folder
      files = caller_locations.map(&:absolute_path)
      file = files.find { |path| path&.start_with?("/") && path != __FILE__ }
      file ? File.dirname(file) : Dir.pwd
    end
    private_class_method :caller_folder

    # Calls the block for each Ruby file that is loaded from now on, and no earlier block. It gets
    # `:hit`, `:stale` or `:miss`, the file, and why its code is not from the pack. Without a block,
    # nothing is called any more.
    def self.on_event(&block)
      observe(block)
    end
    private_class_method :observe

    start(caller_folder)
  end
end

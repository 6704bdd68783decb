# frozen_string_literal: true

require "thruway/thruway"

module Thruway
  # Boots Ruby from a pack: `require` looks features up in the pack instead of searching the load
  # path. See docs/reference/verbs/run.md.
  module Boot
    # The folder of the file that requires this file, or the current folder.
    def self.caller_folder
      files = caller_locations.map(&:absolute_path)
      file = files.find { |path| path&.start_with?("/") && path != __FILE__ }
      file ? File.dirname(file) : Dir.pwd
    end
    private_class_method :caller_folder

    # Calls the block for each Ruby file that is loaded from now on, with `:hit`, `:stale` or
    # `:miss`, the file, and the reason why the code is not from the pack. The block replaces an
    # earlier block. Without a block, the earlier block is removed.
    def self.on_event(&block)
      observe(block)
    end
    private_class_method :observe

    start(caller_folder)
  end
end

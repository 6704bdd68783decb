# frozen_string_literal: true

module Thruway
  # Hooks of an application around the forks of its booted template. Rails' own hooks for forks run
  # anyway. Without a template, these blocks are never called. See docs/reference/verbs/preload.md.
  module Preload
    @before = []
    @after = []
    @excluded = []

    class << self
      # :nodoc:
      attr_reader :excluded

      # Calls the block in the template before each fork, to release resources that a child must not
      # share.
      def before_fork(&block) = @before << block

      # Calls the block in each child before the command begins, to acquire such resources again.
      def after_fork(&block) = @after << block

      # Excludes files and folders, which the boot looks at, from the comparison with the disk.
      def exclude(*paths) = @excluded.concat(paths.map(&:to_s))

      # :nodoc:
      def run_before_fork = @before.each(&:call)

      # :nodoc:
      def run_after_fork = @after.each(&:call)
    end
  end
end

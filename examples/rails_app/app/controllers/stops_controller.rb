# frozen_string_literal: true

# The road, and one stop of it.
class StopsController < ApplicationController
  def index
    @stops = Stop.along_the_road
    @note_counts = Note.group(:stop_id).count
  end

  def show
    @stop = Stop.find(params[:id])
    @notes = @stop.notes.newest_first.limit(20)
    @note = Note.new
  end
end
